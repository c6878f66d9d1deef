// SPDX-License-Identifier: Apache-2.0
#include "plan/stage/split_backward.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include "plan/block/kept.hpp"
#include "plan/block/saved.hpp"
#include "plan/block/tensors.hpp"
#include "plan/stage/block_items.hpp"

namespace orrery::plan {

namespace {

std::vector<bool> steps_of_weight_grad(const std::vector<Step>& steps) {
  std::vector<bool> later(steps.size());
  for (std::size_t i = 0; i < steps.size(); ++i) {
    later[i] = steps[i].pass == sim::PassKind::WeightGrad;
  }
  for (std::size_t i = steps.size(); i-- > 0;) {
    if (later[i]) {
      continue;
    }
    for (const int before : steps[i].after) {
      const auto at = static_cast<std::size_t>(before);
      later[at] = later[at] && !steps[at].collective;
    }
  }
  return later;
}

double launches_of(const std::vector<Step>& steps) {
  double launches = 0;
  for (const Step& step : steps) {
    launches += step.collective ? 0 : step.launches;
  }
  return launches;
}

}  // namespace

SplitSteps split_steps(const std::vector<Step>& steps) {
  const std::vector<bool> later = steps_of_weight_grad(steps);
  SplitSteps lists;
  // By step: the last one of each list up to it.
  std::vector<std::array<int, 2>> place(steps.size());
  for (std::size_t i = 0; i < steps.size(); ++i) {
    std::vector<Step>& list = later[i] ? lists.weight_grad : lists.input_grad;
    const std::size_t own = later[i] ? 1 : 0;
    place[i] = i == 0 ? std::array<int, 2>{-1, -1} : place[i - 1];
    place[i][own] = static_cast<int>(list.size());
    Step step = steps[i];
    step.after.clear();
    for (const int before : steps[i].after) {
      // For one of the other list stands what came before it in this one.
      const int same = place[static_cast<std::size_t>(before)][own];
      if (same >= 0 && std::find(step.after.begin(), step.after.end(), same) == step.after.end()) {
        step.after.push_back(same);
      }
    }
    std::sort(step.after.begin(), step.after.end());
    list.push_back(std::move(step));
  }
  return lists;
}

double host_share(const std::vector<Step>& part, const std::vector<Step>& backward) {
  return launches_of(part) / std::max(1.0, launches_of(backward));
}

namespace {

// Inputs and output gradients of the products, each 16-bit tensor once; in 8 or 4 bits as they were
// cast.
ByteCount read_by_weight_grads(const BlockContext& context) {
  const BlockRules rules = rules_of(context.layout, context.execution.vocab_parallel);
  const std::vector<Layout> produced = produced_layouts(context.block, rules);
  std::vector<bool> seen(context.block.tensors.size(), false);
  ByteCount bytes;
  for (const models::Operator& op : context.block.operators) {
    if (!models::is_gemm(op) || !models::gives_weight_gradient(context.block, op)) {
      continue;
    }
    const std::vector<models::Saved> own = kept_by(context, op, context.layout.recompute);
    const auto cast = [&](ByteCount whole, bool is_cast) {
      const double share = is_cast ? cast_share(context) : 1.0;
      return ByteCount(static_cast<std::int64_t>(static_cast<double>(whole.value()) * share));
    };
    for (const int input : op.inputs) {
      const auto slot = static_cast<std::size_t>(input);
      const bool is_cast = std::any_of(own.begin(), own.end(), [&](const models::Saved& saved) {
        return saved.tensor == input && saved.copies < 1;
      });
      const bool of_stage = input == context.block.memory && takes_carried(context.block);
      if (is_cast || !(seen[slot] || of_stage)) {
        seen[slot] = seen[slot] || !is_cast;
        bytes += cast(tensor_bytes(context, input, produced[slot]), is_cast);
      }
    }
    for (const int output : op.outputs) {
      const auto slot = static_cast<std::size_t>(output);
      bytes +=
          cast(tensor_bytes(context, output, gradient_of(produced[slot])), keeps_cast(context, op));
    }
  }
  return bytes;
}

}  // namespace

const SplitBackwards::Split& SplitBackwards::of(const StagePiece& piece, const Plan& plan,
                                                const BlockCosts& costs) {
  const std::int64_t micro_batch = micro_batch_of(piece, plan);
  const BlockPlan& layout = piece.layout;
  const BlockCosts::Key key = costs.key_of(piece.block, layout, micro_batch);
  const auto [slot, is_new] = known_.try_emplace(key);
  if (!is_new) {
    return slot->second;
  }
  Split& split = slot->second;
  const BlockContext context = costs.block_context(piece.block, layout, micro_batch);
  const BlockSteps steps = costs.steps_of(piece.block, layout, micro_batch);
  split.layer = context.block.kind == models::BlockKind::Layer;
  const Seconds host = host_of_pass(costs.execution(), context.block);
  const SplitSteps lists = split_steps(steps.backward);
  const auto queued = [&](const std::vector<Step>& list, double share) {
    return queue_steps(list, costs.device(), host * share);
  };
  const auto seconds = [](const PassCost& pass) {
    return std::max(to_seconds(pass.time), pass.host).value();
  };
  // The recomputation runs before B; what it costs is the same in both forms.
  const Seconds replay_host = layout.recompute == Recompute::Full ? host : Seconds();
  const PassCost replay = queue_steps(steps.recompute, costs.device(), replay_host);
  split.whole = seconds(replay + queued(steps.backward, 1.0));
  split.weight_grad =
      seconds(queued(lists.weight_grad, host_share(lists.weight_grad, steps.backward)));
  const PassCost input = queued(lists.input_grad, host_share(lists.input_grad, steps.backward));
  split.input_grad = std::max(seconds(replay + input), split.whole - split.weight_grad);
  split.kept = read_by_weight_grads(context);
  split.carried = carried_by(context);
  // A product of the block that makes it reads it, too.
  split.carried.kept = split.carried.bytes.value() > 0 && !split.carried.taken;
  return split;
}

bool splits_backward(const sim::PipelineOrder& order) {
  return std::any_of(order.passes.begin(), order.passes.end(), [](const auto& list) {
    return std::any_of(list.begin(), list.end(),
                       [](const sim::Pass& pass) { return pass.kind == sim::PassKind::InputGrad; });
  });
}

namespace {

SimTime backward_alone(const std::vector<BlockItem>& items) {
  SimTime sum;
  for (const BlockItem& item : items) {
    sum += item.backward;
  }
  return sum;
}

}  // namespace

std::vector<bool> ends_cut(const sim::PipelineOrder& order) {
  std::vector<bool> cut(static_cast<std::size_t>(order.num_virtual_stages), false);
  for (const auto& list : order.passes) {
    for (const sim::Pass& pass : list) {
      if (pass.kind == sim::PassKind::Backward || pass.kind == sim::PassKind::WeightGrad) {
        cut[pass.virtual_stage] = pass.kind == sim::PassKind::WeightGrad;
      }
    }
  }
  return cut;
}

SplitTimes SplitBackwards::times(const StageContent& content, const Plan& plan,
                                 const BlockCosts& costs, const StageCost& stage) {
  double whole = 0;
  double input_grad = 0;
  double weight_grad = 0;
  for (const StagePiece& piece : content) {
    const Split& split = of(piece, plan, costs);
    whole += split.whole * piece.count;
    input_grad += split.input_grad * piece.count;
    weight_grad += split.weight_grad * piece.count;
  }
  if (whole <= 0) {
    return {stage.backward - to_sim_time(stage.exposed_data_backward), SimTime{}};
  }
  // Under a draw of errors both parts grow as the whole does.
  const Seconds blocks = to_seconds(stage.backward_cost.time);
  SplitTimes times;
  times.weight_grad = to_sim_time(blocks * (weight_grad / whole));
  const SimTime backward = stage.backward - to_sim_time(stage.exposed_data_backward);
  const SimTime together =
      std::max(backward, backward - stage.backward_cost.time +
                             to_sim_time(blocks * ((input_grad + weight_grad) / whole)));
  times.input_grad = std::max(SimTime{}, together - times.weight_grad);
  return times;
}

double SplitBackwards::input_share(const StagePiece& piece, const Plan& plan,
                                   const BlockCosts& costs) {
  const Split& split = of(piece, plan, costs);
  return split.whole > 0 ? split.input_grad / split.whole : 0.0;
}

std::pair<std::vector<BlockItem>, std::vector<BlockItem>> SplitBackwards::cut_items(
    const StageContent& content, const Plan& plan, BlockCosts& costs) {
  StageCost ignored;
  std::vector<BlockItem> input = items_of(content, plan, costs, {}, StepEnds::Simulated, ignored);
  std::vector<BlockItem> weight = input;
  std::size_t item = 0;
  for (const StagePiece& piece : content) {
    const Split& split = of(piece, plan, costs);
    const double share = split.whole > 0 ? split.weight_grad / split.whole : 0.0;
    for (int count = 0; count < piece.count; ++count, ++item) {
      const SimTime block = input[item].backward - input[item].conversion;
      weight[item].backward = to_sim_time(to_seconds(block) * share);
      input[item].backward -= weight[item].backward;
      input[item].reduce = Seconds();
    }
  }
  return {std::move(input), std::move(weight)};
}

SplitBackwards::Traffic SplitBackwards::traffic(const StageContent& content, const Plan& plan,
                                                BlockCosts& costs, bool last_is_cut,
                                                const StageCost& stage) {
  Traffic traffic;
  const bool overlaps = plan.execution.overlap_grad_reduce;
  const bool hides_step = overlaps && last_is_cut && stage.reduce_total > SimTime{};
  if (!stage.simulated || (!hides_step && !reduces_every_micro_batch(content))) {
    return traffic;
  }
  const auto [input, weight] = cut_items(content, plan, costs);
  const SimTime weight_alone = backward_alone(weight);
  const Seconds every = total(weight, &BlockItem::pass_reduce);
  BackwardOptions options = backward_options(input, plan.execution);
  if (options.gather) {
    traffic.gathers = repeated_backward(input, costs, options) - backward_alone(input);
    options.gather = false;
  }
  traffic.reductions = overlaps ? SimTime{} : to_sim_time(every);
  if (overlaps && every.value() > 0) {
    traffic.reductions = repeated_backward(weight, costs, options) - weight_alone;
  }
  if (hides_step) {
    options.last = true;
    const auto last = backward_with_traffic(weight, costs, options);
    const SimTime usual = weight_alone + traffic.reductions;
    traffic.last = {std::max(SimTime{}, last.compute - usual),
                    std::max(SimTime{}, last.data - std::max(last.compute, usual))};
  }
  return traffic;
}

SplitTimes SplitBackwards::times_with(const Traffic& traffic, const StageContent& content,
                                      const Plan& plan, const BlockCosts& costs, StageCost& stage) {
  SplitTimes times = this->times(content, plan, costs, stage);
  times.input_grad += traffic.gathers;
  times.weight_grad += traffic.reductions;
  if (traffic.last) {
    stage.last_backward = stage.backward + traffic.last->compute;
    stage.reduce_tail = traffic.last->reductions;
  }
  stage.exposed_data_cut = to_seconds(traffic.gathers + traffic.reductions);
  return times;
}

SplitTimes SplitBackwards::times_with_traffic(const StageContent& content, const Plan& plan,
                                              BlockCosts& costs, bool last_is_cut,
                                              StageCost& stage) {
  const Traffic traffic = this->traffic(content, plan, costs, last_is_cut, stage);
  return times_with(traffic, content, plan, costs, stage);
}

std::vector<SplitTimes> SplitBackwards::times_with_traffic(
    const std::vector<StageContent>& contents, const Plan& plan, BlockCosts& costs,
    const std::vector<bool>& last_is_cut, std::vector<StageCost>& stages) {
  std::vector<Traffic> known;
  std::vector<SplitTimes> times;
  for (std::size_t stage = 0; stage < contents.size(); ++stage) {
    const std::size_t first = first_equal(contents, stage);
    known.push_back(first < stage && last_is_cut[first] == last_is_cut[stage]
                        ? known[first]
                        : traffic(contents[stage], plan, costs, last_is_cut[stage], stages[stage]));
    times.push_back(times_with(known[stage], contents[stage], plan, costs, stages[stage]));
  }
  return times;
}

SplitBackwards::Kept SplitBackwards::kept(const StageContent& content, const Plan& plan,
                                          const BlockCosts& costs) {
  Kept kept;
  CarriedOnce carried;
  for (const StagePiece& piece : content) {
    const Split& split = of(piece, plan, costs);
    (split.layer ? kept.layers : kept.ends) += split.kept * piece.count;
    carried.add(split.carried);
  }
  kept.carried = carried.saved();
  kept.layers += kept.carried;
  return kept;
}

}  // namespace orrery::plan
