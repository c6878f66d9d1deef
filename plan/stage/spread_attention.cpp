// SPDX-License-Identifier: Apache-2.0
#include "plan/stage/spread_attention.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "plan/schedule_traits.hpp"
#include "plan/stage/amax.hpp"
#include "plan/stage/plan_schedule.hpp"
#include "plan/stage/transfers.hpp"
#include "sim/orders/order_blocks.hpp"

namespace orrery::plan {

namespace {

// The product that makes queries, keys and values, and the tensor it reads.
struct Projection {
  std::string_view product;
  std::string_view input;
  bool meets(const Step& step) const { return step.name == product || step.name == input; }
};

Projection projection_of(const models::Block& block) {
  const auto product = std::find_if(
      block.operators.begin(), block.operators.end(),
      [&](const models::Operator& op) { return group_of(block, op) == OperatorGroup::Qkv; });
  const auto input = static_cast<std::size_t>(product->inputs.front());
  return {product->name, block.tensors[input].name};
}

// Steps of a pass by their side of attention, on whose side those of `shipped` are.
struct Sides {
  Seconds before;
  Seconds attention;
  Seconds after;
  void add(const std::vector<Step>& steps, bool reversed, const Projection& shipped) {
    bool begun = false;
    bool passed = false;
    for (std::size_t index = 0; index < steps.size(); ++index) {
      const Step& step = steps[reversed ? steps.size() - 1 - index : index];
      const bool inside = step.cost_class == CostClass::Attention;
      begun = begun || shipped.meets(step);
      passed = passed || inside;
      (inside || (begun && !passed) ? attention : passed ? after : before) += step.time;
    }
  }
};

struct Parts {
  SimTime before;
  SimTime attention;
  SimTime after;
};

// Steps that run beside each other take less than their sum: all in proportion.
Parts parts_of(const Sides& sides, SimTime time) {
  const Seconds all = sides.before + sides.attention + sides.after;
  const double scale = all.value() > 0 ? to_seconds(time) / all : 0.0;
  Parts parts;
  parts.before = to_sim_time(sides.before * scale);
  parts.attention = std::min(time - parts.before, to_sim_time(sides.attention * scale));
  parts.after = time - parts.before - parts.attention;
  return parts;
}

struct LayerPasses {
  Parts forward;
  Parts backward;
};

LayerPasses passes_of_layer(const Plan& plan, const StagePiece& piece, BlockCosts& costs) {
  const std::int64_t micro_batch = micro_batch_of(piece, plan);
  const BlockSteps steps = costs.steps_of(piece.block, piece.layout, micro_batch);
  const BlockCost& cost = costs.of(piece.block, piece.layout, micro_batch);
  const Projection shipped =
      plan.execution.ships_weights
          ? projection_of(plan.network.blocks[static_cast<std::size_t>(piece.block)])
          : Projection{};
  Sides forward;
  forward.add(steps.forward, false, shipped);
  Sides backward;
  backward.add(steps.recompute, false, shipped);
  // What comes after attention has its gradients first.
  backward.add(steps.backward, true, shipped);
  return {parts_of(forward, cost.forward.time), parts_of(backward, cost.backward.time)};
}

// Bytes of queries, keys and values, of attention's result and of the weights (and biases) that
// make the former, of a micro-batch on a rank.
struct AttentionBytes {
  ByteCount inputs;
  ByteCount result;
  ByteCount weights;
};

AttentionBytes attention_bytes(const Plan& plan, const StagePiece& piece) {
  const models::NetworkSpec& spec = plan.network.spec;
  const BlockPlan& layout = piece.layout;
  const bool latent = spec.mla.kv_lora_rank > 0;
  const std::int64_t heads = spec.heads / layout.tp;
  const std::int64_t kv = spec.kv_heads > 0 && !latent ? spec.kv_heads : spec.heads;
  const std::int64_t kv_heads = std::max<std::int64_t>(1, kv / layout.tp);
  const std::int64_t query =
      latent ? spec.mla.qk_nope_head_dim + spec.mla.qk_rope_head_dim : spec.head_dim;
  const std::int64_t value = latent ? spec.mla.v_head_dim : spec.head_dim;
  const std::int64_t tokens = micro_batch_of(piece, plan) * plan.sequence / layout.cp;
  const std::int64_t bytes = element_bytes(models::Element::Compute, plan.precision);
  const std::int64_t width = heads * query + kv_heads * (query + value);
  const std::int64_t inputs = spec.hidden + (spec.attention_bias ? 1 : 0);
  return {ByteCount(tokens * bytes * width), ByteCount(tokens * bytes * heads * value),
          ByteCount(inputs * bytes * width)};
}

// Virtual stages of the order: for every offset a chain of parts and attentions in turn.
struct Numbering {
  std::size_t layers;
  std::size_t chain() const { return 2 * layers + 1; }
  std::size_t part(std::size_t offset, std::size_t layer) const {
    return offset * chain() + 2 * layer;
  }
};

SimTime time_of_ends(const Plan& plan, const StageContent& content, models::BlockKind kind,
                     bool forward, BlockCosts& costs) {
  SimTime time;
  for (const StagePiece& piece : content) {
    if (kind_of(piece, plan.network) == kind) {
      const BlockCost& cost = costs.of(piece.block, piece.layout, micro_batch_of(piece, plan));
      time += (forward ? cost.forward.time : cost.backward.time) * std::int64_t{piece.count};
    }
  }
  return time;
}

const StagePiece& layer_of(const StageContent& content, const models::Network& network) {
  return *std::find_if(content.begin(), content.end(),
                       [&](const StagePiece& piece) { return is_layer(piece, network); });
}

// Parameters gathered for the first forward of a step, which the waits of earlier layers delay, and
// casts of weights.
void add_first_gathers(const std::vector<StageCost>& stages, const Numbering& number,
                       sim::PipelineCosts& passes) {
  passes.first_forward_extra.resize(passes.forward.size());
  SimTime arrival;
  for (std::size_t l = 0; l < number.layers; ++l) {
    const std::size_t part = number.part(0, l);
    const SimTime late =
        stages[l].gathered_forward + stages[l].gathers_before - stages[l].forward - arrival;
    passes.first_forward_extra[part] = std::max(SimTime{}, late) + stages[l].weight_casts;
    arrival += passes.first_forward_extra[part];
    for (const std::size_t pass : {part, part + 1}) {
      arrival += passes.forward[pass] + passes.send_forward[pass];
    }
  }
}

// Passes of one chain of parts and attentions.
void add_chain_passes(const std::vector<LayerPasses>& layers, sim::PipelineCosts& passes) {
  for (std::size_t l = 0; l <= layers.size(); ++l) {
    SimTime forward;
    SimTime backward;
    if (l > 0) {
      forward += layers[l - 1].forward.after;
      backward += layers[l - 1].backward.after;
    }
    if (l < layers.size()) {
      forward += layers[l].forward.before;
      backward += layers[l].backward.before;
    }
    passes.forward.push_back(forward);
    passes.backward.push_back(backward);
    if (l < layers.size()) {
      passes.forward.push_back(layers[l].forward.attention);
      passes.backward.push_back(layers[l].backward.attention);
    }
  }
}

}  // namespace

std::string spread_attention_problem(const Plan& plan) {
  if (!schedule_traits(plan).spreads_attention || plan.network.chain.empty()) {
    return "";
  }
  const models::NetworkSpec& spec = plan.network.spec;
  if (spec.encoder.layers > 0 || spec.encoder_layers > 0) {
    return fmt::format(
        "{} has an encoder, and layers are to be equal: set the schedule to \"1f1b\"", spec.name);
  }
  if (spec.adapters.rank > 0) {
    return fmt::format(
        "the first layer above frozen weights has less to do backward, and layers of {} are to be "
        "equal: set the schedule to \"1f1b\"",
        plan.schedule);
  }
  if (std::int64_t{plan.pp} * plan.chunks != spec.layers) {
    return fmt::format("a virtual stage is one layer, but {} layers are cut into {}: {}",
                       spec.layers, std::int64_t{plan.pp} * plan.chunks,
                       spec.layers % plan.pp == 0
                           ? fmt::format("set chunks to {}", spec.layers / plan.pp)
                           : "set pp to a divisor of the layers");
  }
  if (plan.blocks.size() > 1) {
    return "layers are to be equal, but blocks have several layouts: give all the same";
  }
  const BlockPlan& layout = plan.blocks.front().layout;
  if (layout.zero_stage > 1) {
    return fmt::format(
        "parts of a layer are on several devices, and parameters are whole there, but zero_stage "
        "= {}: set zero_stage to 1",
        layout.zero_stage);
  }
  if (layout.recompute == Recompute::Full || layout.recompute == Recompute::Products) {
    return "a recomputed forward would send queries, keys and values again: set recompute to "
           "\"none\", \"selective\" or a list of operators";
  }
  if (plan.execution.ships_weights && spec.mla.kv_lora_rank > 0) {
    return "latent attention has several products to ship: set ships_weights to false";
  }
  return layout.offload.any()
             ? "copies to the host are not modelled for parts of layers: offload nothing"
             : "";
}

void join_ends(const Plan& plan, std::vector<StageContent>& stages) {
  const auto is_head = [&](const StagePiece& piece) {
    return kind_of(piece, plan.network) == models::BlockKind::Head;
  };
  StageContent heads;
  for (StageContent& content : stages) {
    std::copy_if(content.begin(), content.end(), std::back_inserter(heads), is_head);
    std::erase_if(content, is_head);
  }
  stages.front().insert(stages.front().end(), heads.begin(), heads.end());
}

std::vector<std::uint16_t> devices_of_stages(const Plan& plan, const sim::PipelineOrder& order) {
  if (!schedule_traits(plan).spreads_attention) {
    return order.device_of;
  }
  return sim::loop_placement({.stages = plan.pp, .chunks = plan.chunks});
}

sim::PipelineCosts spread_passes(const Plan& plan, const sim::PipelineOrder& order,
                                 const std::vector<StageCost>& stages, BlockCosts& costs) {
  const std::vector<StageContent> contents = stage_contents(plan);
  std::vector<LayerPasses> layers;
  for (const StageContent& content : contents) {
    layers.push_back(passes_of_layer(plan, layer_of(content, plan.network), costs));
  }
  const Numbering number{layers.size()};
  sim::PipelineCosts passes;
  const auto offsets = static_cast<std::size_t>(plan.pp);
  for (std::size_t offset = 0; offset < offsets; ++offset) {
    add_chain_passes(layers, passes);
    for (const bool forward : {true, false}) {
      std::vector<SimTime>& times = forward ? passes.forward : passes.backward;
      const auto ends = [&](models::BlockKind kind) {
        return time_of_ends(plan, contents.front(), kind, forward, costs);
      };
      times[number.part(offset, 0)] += ends(models::BlockKind::Embedding);
      times[number.part(offset, layers.size())] += ends(models::BlockKind::Head);
    }
  }
  for (std::size_t offset = 0; offset < offsets; ++offset) {
    for (std::size_t l = 0; l < layers.size(); ++l) {
      const AmaxReductions amax = amax_reductions(contents[l], plan, costs);
      passes.forward[number.part(offset, l + 1)] += to_sim_time(amax.forward);
      passes.backward[number.part(offset, l)] += to_sim_time(amax.backward);
    }
  }
  const StagePiece& layer = layer_of(contents.front(), plan.network);
  const AttentionBytes bytes = attention_bytes(plan, layer);
  const ByteCount boundary =
      costs.of(layer.block, layer.layout, micro_batch_of(layer, plan)).boundary;
  const ByteCount to_attention =
      plan.execution.ships_weights ? boundary + bytes.weights : bytes.inputs;  // beside the stream
  TransferTimes known(costs);
  for (std::size_t s = 0; s + 1 < passes.forward.size(); ++s) {
    const std::size_t in_chain = s % number.chain();
    SimTime send;
    if (in_chain + 1 < number.chain()) {
      const ByteCount message = boundary + (in_chain % 2 == 0 ? to_attention : bytes.result);
      send = known.of(plan, message, 1, order.device_of[s], order.device_of[s + 1]);
    }
    if (!plan.execution.overlap_p2p) {  // the sender waits
      passes.forward[s] += send;
      passes.backward[s + 1] += send;
      send = SimTime{};
    }
    passes.send_forward.push_back(send);
    passes.send_backward.push_back(send);
  }
  add_first_gathers(stages, number, passes);
  return passes;
}

ByteCount shipped_weights(const Plan& plan) {
  if (!plan.execution.ships_weights || !schedule_traits(plan).spreads_attention) {
    return ByteCount();
  }
  const std::vector<StageContent> contents = stage_contents(plan);
  const StagePiece& layer = layer_of(contents.front(), plan.network);
  const ByteCount weights = attention_bytes(plan, layer).weights;
  // One of pp offsets has its attention where the layer is.
  const std::int64_t elsewhere = plan.num_micro_batches() / plan.pp * (plan.pp - 1);
  return plan.pp == 1 ? ByteCount() : weights * (elsewhere * plan.chunks + 1);
}

void tell_layers(const Plan& plan, sim::PipelineResult& result) {
  const Numbering number{static_cast<std::size_t>(plan.pp * plan.chunks)};
  std::vector<SimTime> ends(number.layers);
  for (std::size_t l = 0; l < number.layers; ++l) {
    for (std::size_t offset = 0; offset < static_cast<std::size_t>(plan.pp); ++offset) {
      ends[l] = std::max(ends[l], result.last_backward_end[number.part(offset, l)]);
    }
  }
  result.last_backward_end = std::move(ends);
}

sim::PipelineOrder layers_in_turn(const Plan& plan) {
  sim::ScheduleParams params = schedule_params(plan);
  sim::PipelineOrder order = sim::empty_order(params, sim::loop_placement(params), 2);
  for (int unit = 0; unit < params.micro_batches; ++unit) {
    for (int layer = 0; layer < order.num_virtual_stages; ++layer) {
      sim::add_pass(order, sim::PassKind::Forward, layer, unit);
    }
  }
  for (std::vector<sim::Pass>& list : order.passes) {
    sim::append_reversed(list);
  }
  return order;
}

}  // namespace orrery::plan
