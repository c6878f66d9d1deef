// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>
#include <vector>

#include "base/limits.hpp"
#include "plan/block/cost.hpp"
#include "search/space/constraints.hpp"
#include "studies/reproduction/headline_kinds.hpp"

namespace orrery::studies {

namespace {

// Times of the steps of a pass before, in and after attention, and of its weight gradients.
struct Parts {
  Seconds before;
  Seconds attention;
  Seconds after;
  Seconds weight_grad;
  Seconds all() const { return before + attention + after; }
};

Parts parts_of(const std::vector<plan::Step>& steps) {
  Parts parts;
  bool passed = false;
  for (const plan::Step& step : steps) {
    const bool attention = step.cost_class == plan::CostClass::Attention;
    passed = passed || attention;
    (attention ? parts.attention : passed ? parts.after : parts.before) += step.time;
    parts.weight_grad += step.pass == sim::PassKind::WeightGrad ? step.time : Seconds();
  }
  return parts;
}

// Shares of a pass, which is shorter than its steps where some run beside each other.
void set_parts(Json& block, const std::string& pass, const std::vector<plan::Step>& steps,
               Seconds time) {
  const Parts parts = parts_of(steps);
  const double scale = parts.all().value() > 0 ? time / parts.all() : 0;
  block.set("before_attention_" + pass + "_s", (parts.before * scale).value());
  block.set("attention_" + pass + "_s", (parts.attention * scale).value());
  block.set("after_attention_" + pass + "_s", (parts.after * scale).value());
  block.set("weight_grad_" + pass + "_s", (parts.weight_grad * scale).value());
}

Json block_json(plan::BlockCosts& costs, int index, const plan::BlockPlan& layout,
                std::int64_t micro_batch) {
  const plan::BlockCost& cost = costs.of(index, layout, micro_batch);
  const plan::BlockSteps steps = costs.steps_of(index, layout, micro_batch);
  std::int64_t parameters = 0;
  for (const plan::StateGroup& group : cost.states) {
    parameters += group.elements;
  }
  Json block = Json::object();
  block.set("forward_s", to_seconds(cost.forward.time).value());
  block.set("backward_s", to_seconds(cost.backward.time).value());
  block.set("recompute_s", to_seconds(cost.recompute.time).value());
  set_parts(block, "forward", steps.forward, to_seconds(cost.forward.time));
  const Seconds gradients = to_seconds(cost.backward.time) - to_seconds(cost.recompute.time);
  // Gradients of what comes after attention are computed before it.
  std::vector<plan::Step> reversed(steps.backward.rbegin(), steps.backward.rend());
  set_parts(block, "backward", reversed, gradients);
  block.set("saved_bytes", static_cast<double>(cost.saved.value()));
  block.set("boundary_bytes", static_cast<double>(cost.boundary.value()));
  block.set("parameters", parameters);
  return block;
}

std::string_view name_of(models::BlockKind kind) {
  switch (kind) {
    case models::BlockKind::Embedding:
      return "embedding";
    case models::BlockKind::Layer:
      return "layer";
    case models::BlockKind::Head:
      return "head";
  }
  return "";
}

plan::BlockPlan read_layout(const JsonReader& value, ObjectReader& run) {
  plan::BlockPlan layout;
  layout.tp = static_cast<int>(run.integer_or("tp", 1, 1, limits::kMaxDevices));
  layout.cp = static_cast<int>(run.integer_or("cp", 1, 1, limits::kMaxDevices));
  layout.sequence_parallel = run.boolean_or("sequence_parallel", layout.tp > 1);
  layout.recompute = plan::parse_recompute(run.string_or("recompute", "none"), value.where());
  return layout;
}

}  // namespace

Json blocks_run(const JsonReader& value, ObjectReader& run) {
  plan::Plan plan = plan_of_run(value, run, "blocks");
  const plan::BlockPlan layout = read_layout(value, run);
  const std::int64_t micro_batch = run.integer_or("micro_batch", 1, 1, limits::kMaxBatch);
  search::Constraints flags;
  flags.fix(run.string_or("execution", ""));
  flags.apply(plan.execution);
  run.finish();
  plan.batch = micro_batch;
  plan.micro_batch = micro_batch;
  plan.blocks = {{static_cast<int>(plan.network.chain.size()), layout}};
  plan.stage_blocks = {static_cast<int>(plan.network.chain.size())};
  plan::BlockCosts costs(plan);
  Json result = Json::object();
  double boundary = 0;
  for (std::size_t index = 0; index < plan.network.blocks.size(); ++index) {
    const std::string_view name = name_of(plan.network.blocks[index].kind);
    if (result.find(name) == nullptr) {
      result.set(name, block_json(costs, static_cast<int>(index), layout, micro_batch));
      boundary = std::max(boundary, result.find(name)->find("boundary_bytes")->as_number());
    }
  }
  const int senders = plan.cluster.node.gpus;
  result.set("layers", plan.network.spec.layers);
  result.set("send_inside_s",
             costs.collectives().send_receive(Bytes(boundary), true, senders).value());
  result.set("send_between_s",
             costs.collectives().send_receive(Bytes(boundary), false, senders).value());
  return result;
}

}  // namespace orrery::studies
