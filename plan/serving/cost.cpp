// SPDX-License-Identifier: Apache-2.0
#include "plan/serving/cost.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "base/math.hpp"
#include "plan/block_rules.hpp"
#include "plan/serving/cost_parts.hpp"
#include "plan/stage/offload_time.hpp"
#include "sim/engine/share_curves.hpp"

namespace orrery::plan {
namespace {

using costmodel::AttentionShape;
using costmodel::MemoryKernel;
using models::Block;
using models::BlockKind;
using models::OpKind;

// Whether a step works on the copies of tokens that the experts of all replicas got.
bool is_of_experts(const Block& block, const Step& step) {
  const auto op = std::find_if(block.operators.begin(), block.operators.end(),
                               [&](const models::Operator& one) { return one.name == step.name; });
  if (op != block.operators.end()) {
    return iterates_over(block, *op, models::Var::Expert);
  }
  const auto tensor =
      std::find_if(block.tensors.begin(), block.tensors.end(),
                   [&](const models::Tensor& one) { return one.name == step.name; });
  return tensor != block.tensors.end() &&
         std::any_of(tensor->dims.begin(), tensor->dims.end(),
                     [](const models::Dim& dim) { return dim.var == models::Var::Choice; });
}

bool crosses_replicas(const Step& step) {
  return step.collective && (step.axes >> static_cast<unsigned>(Axis::Expert) & 1U) != 0;
}

BlockPlan without_context(BlockPlan layout) {
  layout.cp = 1;
  return layout;
}

// Attention of training is another kernel than that of inference, which reads pages of keys.
costmodel::Profile of_inference(costmodel::Profile profile) {
  const costmodel::KernelResiduals& all = profile.kernels.residuals;
  std::vector<costmodel::ResidualSet> sets = all.sets();
  const auto erased = std::erase_if(sets, [](const costmodel::ResidualSet& set) {
    return set.key.kind == costmodel::KernelKind::AttentionForward &&
           set.key.load == costmodel::Load::Sustained;
  });
  if (erased > 0) {
    profile.kernels.residuals = {"", all.sms(), all.source(), std::move(sets)};
  }
  return profile;
}

Plan without_training(const Plan& plan) {
  Plan serving = plan;
  models::NetworkSpec spec = plan.network.spec;
  spec.hidden_dropout = 0;
  spec.attention_dropout = 0;
  serving.network = models::build_network(spec, spec.name);
  serving.profile = of_inference(plan.profile);
  return serving;
}

// A nano-batch has no fewer tokens (NanoFlow, section 4.1); smaller iterations run in turn.
constexpr std::int64_t kNanoTokens = 128;

double as_double(std::int64_t value) { return static_cast<double>(value); }

}  // namespace

std::string_view to_text(ServingPart part) {
  constexpr std::array<std::string_view, kNumServingParts> kNames = {
      "gemm", "decode_attention", "prompt_attention", "network", "other"};
  return kNames[static_cast<std::size_t>(part)];
}

ServingModel::Costs::Costs(const Plan& plan)
    : blocks(without_training(plan)), linear(blocks.network().blocks.size()) {}

ServingModel::ServingModel(const Plan& plan) : ServingModel(plan, std::make_shared<Costs>(plan)) {}

ServingModel::ServingModel(const Plan& plan, const ServingModel& like)
    : ServingModel(plan, like.costs_) {
  ORRERY_CHECK(layout_ == like.layout_, "costs of another layout");
}

ServingModel::ServingModel(const Plan& plan, std::shared_ptr<Costs> costs)
    : plan_(plan),
      layout_(plan.blocks.front().layout),
      linear_layout_(without_context(layout_)),
      replicas_(expert_replicas(layout_)),
      mesh_(mesh_of(linear_layout_, replicas_)),
      costs_(std::move(costs)) {
  auto position = network().chain.begin();
  for (const int count : plan.stage_blocks) {
    stages_.push_back({{position, position + count}});
    position += count;
  }
  for (const Block& block : network().blocks) {
    window_ = std::max(window_, block.attention.window);
  }
}

BlockContext ServingModel::context(int block, std::int64_t tokens) const {
  return {network().blocks[static_cast<std::size_t>(block)],
          linear_layout_,
          mesh_,
          {replicas_, tokens},
          costs_->blocks.device(),
          costs_->blocks.collectives(),
          plan_.execution,
          plan_.precision,
          plan_.cluster.node.gpus};
}

ServingModel::LinearCost ServingModel::lower(int block, std::int64_t tokens) const {
  const BlockContext lowered = context(block, tokens);
  LinearCost cost;
  for (const Step& step : serving_steps(lowered)) {
    if (replicas_ > 1 && crosses_replicas(step)) {
      cost.exchange += step.time;
      continue;
    }
    LinearParts& parts =
        replicas_ > 1 && is_of_experts(lowered.block, step) ? cost.experts : cost.own;
    parts.flops += step.flops;
    (step.collective                      ? parts.network
     : step.cost_class == CostClass::Gemm ? parts.gemm
                                          : parts.other) += step.time;
  }
  const costmodel::DeviceModel& device = costs_->blocks.device();
  if (lowered.block.kind == BlockKind::Layer) {  // new keys and values are written to the cache
    cost.own.other += device.memory_bound(Bytes(2.0 * as_double(tokens) * kv_bytes(lowered.block)),
                                          MemoryKernel::Copy);
  } else if (lowered.block.kind == BlockKind::Head) {
    const double logits = as_double(tokens) * as_double(network().spec.vocab);
    const int bytes = element_bytes(models::Element::Compute, plan_.precision);
    cost.own.other += device.memory_bound(Bytes(4 * logits), MemoryKernel::Softmax);
    if (layout_.tp > 1 && plan_.execution.vocab_parallel) {
      cost.own.network += costs_->blocks.collectives().time(
          sim::CommKind::AllGather, Bytes(bytes * logits),
          group_of(mesh_, {Axis::Tensor}, plan_.cluster.node.gpus));
    }
  }
  return cost;
}

const ServingModel::LinearCost& ServingModel::linear(int block, std::int64_t tokens) {
  auto& known = costs_->linear[static_cast<std::size_t>(block)];
  const auto found = known.find(tokens);
  return found != known.end() ? found->second
                              : known.emplace(tokens, lower(block, tokens)).first->second;
}

double ServingModel::kv_bytes(const Block& block) const {
  return kv_elements(network().spec, block, layout_.tp) *
         element_bytes(models::Element::Compute, plan_.precision);
}

Seconds ServingModel::decode_attention(const Block& block, const Iteration& iteration) const {
  if (iteration.decodes == 0 || block.attention.heads == 0) {
    return {};
  }
  const CacheAttention core = cache_attention(network().spec, block, layout_.tp);
  const double keys =
      as_double(block.attention.window > 0 ? iteration.windowed_keys : iteration.keys) / layout_.cp;
  const double rows = as_double(iteration.decodes) * core.heads * core.dims *
                      element_bytes(models::Element::Compute, plan_.precision);
  const costmodel::DeviceModel& device = costs_->blocks.device();
  const DType dtype = unquantised(plan_.precision);
  const double rate =
      device.gpu().peak_of(dtype).value() * device.profile().attention.forward_fraction;
  const Seconds read =
      device.memory_bound(Bytes(keys * kv_bytes(block) + rows), MemoryKernel::Copy);
  return std::max(read, device.profile().attention.launch +
                            Seconds(2.0 * keys * core.heads * core.dims / rate));
}

// All prompts in one kernel of equal prompts with as many tokens and query-key pairs.
Seconds ServingModel::prompt_attention(const Block& block, const Iteration& iteration) const {
  if (iteration.prompts.empty() || block.attention.heads == 0) {
    return {};
  }
  double tokens = 0;
  double pairs = 0;
  const std::int64_t window = block.attention.window;
  for (const PromptPart& part : iteration.prompts) {
    const std::int64_t seen = window > 0 ? std::min(part.done, window) : part.done;
    tokens += as_double(part.tokens);
    pairs += as_double(part.tokens) * (as_double(seen) + as_double(part.tokens + 1) / 2);
  }
  const models::AttentionInfo& info = block.attention;
  AttentionShape shape;
  shape.batch = static_cast<std::int64_t>(iteration.prompts.size());
  shape.heads = ceil_div(info.heads, layout_.tp);
  shape.kv_heads = ceil_div(std::max<std::int64_t>(1, info.kv_heads), layout_.tp);
  const double rows = tokens / as_double(shape.batch);
  shape.q_len = std::max<std::int64_t>(1, std::llround(rows));
  const std::int64_t keys = std::llround(pairs / tokens + (rows - 1) / 2);
  shape.kv_len = std::max(shape.q_len, keys);
  if (layout_.cp > 1) {  // each has its part of the keys of every query
    shape.kv_len = ceil_div(shape.kv_len, layout_.cp);
    shape.causal = false;
  }
  shape.head_dim = info.head_dim;
  shape.value_head_dim = info.value_head_dim > 0 ? info.value_head_dim : info.head_dim;
  shape.window = window;
  shape.dtype = unquantised(plan_.precision);
  shape.flash_version = plan_.execution.flash_version;
  return costs_->blocks.device().attention_forward(shape);
}

Seconds ServingModel::merge_time(const Block& block, const Iteration& iteration) const {
  if (layout_.cp == 1 || block.attention.heads == 0) {
    return {};
  }
  const CacheAttention core = cache_attention(network().spec, block, layout_.tp);
  const int element = element_bytes(models::Element::Compute, plan_.precision);
  const double dims = as_double(block.attention.value_head_dim > 0 ? block.attention.value_head_dim
                                                                   : block.attention.head_dim);
  const double bytes =
      as_double(iteration.tokens()) * core.heads * (dims * element + sizeof(float));
  const Mesh mesh = mesh_of(layout_, 1);
  return costs_->blocks.collectives().time(
      sim::CommKind::AllReduce, Bytes(bytes),
      group_of(mesh, {Axis::Context}, plan_.cluster.node.gpus));
}

int ServingModel::layers_of(const Stage& stage) const {
  return static_cast<int>(std::count_if(stage.blocks.begin(), stage.blocks.end(), [&](int block) {
    return network().blocks[static_cast<std::size_t>(block)].kind == BlockKind::Layer;
  }));
}

// Both directions run together; host memory serves both.
Seconds ServingModel::cache_copies(int stage, const Iteration& iteration) const {
  const double away = plan_.serving->options.host_cache;
  if (away == 0) {
    return {};
  }
  double read = as_double(iteration.keys);
  for (const PromptPart& part : iteration.prompts) {
    read += as_double(part.done);
  }
  double in = 0;
  double out = 0;
  for (const int index : stages_[static_cast<std::size_t>(stage)].blocks) {
    const Block& block = network().blocks[static_cast<std::size_t>(index)];
    if (block.kind == BlockKind::Layer) {
      const double each = away * kv_bytes(block) / layout_.cp;
      in += each * read;
      out += each * as_double(iteration.tokens());
    }
  }
  const sim::TierGraph tiers = tier_graph(plan_.cluster, plan_.profile);
  const double link = tiers.channels.front().bandwidth.value();
  const double host = tiers.tiers[1].bandwidth.value();
  return Seconds(std::max(std::max(in, out) / link, (in + out) / host));
}

IterationCost ServingModel::own_cost(int index, const Iteration& iteration, std::int64_t parts) {
  const Block& block = network().blocks[static_cast<std::size_t>(index)];
  const std::int64_t rows = block.kind == BlockKind::Head ? iteration.sampled : iteration.tokens();
  IterationCost one;
  if (rows > 0) {
    const LinearParts& own = linear(index, ceil_div(rows, parts)).own;
    const auto times = static_cast<double>(parts);
    one.of(ServingPart::Gemm) = own.gemm * times;
    one.of(ServingPart::Network) = own.network * times + merge_time(block, iteration);
    one.of(ServingPart::Other) = own.other * times;
    one.of(ServingPart::Decode) = decode_attention(block, iteration);
    one.of(ServingPart::Prompt) = prompt_attention(block, iteration);
  }
  return one;
}

// Each waits for the slowest before the experts' part, which is about the tokens of all; to send
// its copies the fullest takes longest.
void ServingModel::add_experts(int index, std::span<const Iteration> iterations, std::int64_t parts,
                               IterationCost& cost) {
  std::int64_t sum = 0;
  std::int64_t most = 0;
  for (const Iteration& iteration : iterations) {
    sum += iteration.tokens();
    most = std::max(most, iteration.tokens());
  }
  const std::int64_t mean = ceil_div(sum, static_cast<std::int64_t>(iterations.size()));
  const LinearParts& experts = linear(index, ceil_div(mean, parts)).experts;
  const auto times = static_cast<double>(parts);
  cost.of(ServingPart::Gemm) += experts.gemm * times;
  cost.of(ServingPart::Network) += experts.network * times;
  cost.of(ServingPart::Other) += experts.other * times;
  cost.of(ServingPart::Network) += linear(index, ceil_div(most, parts)).exchange * times;
}

IterationCost ServingModel::block_cost(int index, std::span<const Iteration> iterations,
                                       std::int64_t parts) {
  IterationCost slowest;
  for (const Iteration& iteration : iterations) {
    IterationCost one = own_cost(index, iteration, parts);
    for (const Seconds part : one.parts) {
      one.time += part;
    }
    if (one.time > slowest.time) {
      slowest = one;
    }
  }
  if (replicas_ > 1 && network().blocks[static_cast<std::size_t>(index)].experts > 0) {
    add_experts(index, iterations, parts, slowest);
  }
  return slowest;
}

IterationCost ServingModel::cost(int stage, std::span<const Iteration> iterations) {
  std::int64_t tokens = 0;
  for (const Iteration& iteration : iterations) {
    tokens = std::max(tokens, iteration.tokens());
  }
  const std::int64_t parts =
      std::clamp<std::int64_t>(tokens / kNanoTokens, 1, plan_.serving->options.nano_batches);
  IterationCost cost;
  int last = -1;  // blocks of a stage come in runs of equal ones
  IterationCost one;
  for (const int index : stages_[static_cast<std::size_t>(stage)].blocks) {
    if (index != last) {
      one = block_cost(index, iterations, parts);
      last = index;
    }
    for (std::size_t part = 0; part < kNumServingParts; ++part) {
      cost.parts[part] += one.parts[part];
    }
  }
  const Seconds alone = cost.of(ServingPart::Prompt) + cost.of(ServingPart::Other) +
                        plan_.serving->options.host_per_iteration;
  if (parts > 1) {
    cost.time = alone + sim::nano_batch_sharing().time({cost.of(ServingPart::Gemm),
                                                        cost.of(ServingPart::Decode),
                                                        cost.of(ServingPart::Network)});
  } else {
    cost.time = alone + cost.of(ServingPart::Gemm) + cost.of(ServingPart::Decode) +
                cost.of(ServingPart::Network);
  }
  for (const Iteration& iteration : iterations) {
    cost.time = std::max(cost.time, cache_copies(stage, iteration));
  }
  return cost;
}

Seconds ServingModel::transfer(int stage, const Iteration& iteration) const {
  const int stages = num_stages();
  const int ranks = layout_.tp * layout_.cp * plan_.dp;
  const int next = (stage + 1) % stages;
  const int per_node = plan_.cluster.node.gpus;
  const bool same_node = stage * ranks / per_node == (next * ranks + ranks - 1) / per_node;
  const int width = element_bytes(models::Element::Compute, plan_.precision);
  const double bytes = next == 0 ? 8.0 * as_double(iteration.sampled)
                                 : as_double(iteration.tokens() * network().spec.hidden) * width;
  return costs_->blocks.collectives().send_receive(Bytes(std::max(1.0, bytes)), same_node,
                                                   std::min(ranks, per_node));
}

}  // namespace orrery::plan
