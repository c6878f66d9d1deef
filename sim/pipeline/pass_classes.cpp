// SPDX-License-Identifier: Apache-2.0
#include "sim/pipeline/pass_classes.hpp"

#include <vector>

namespace orrery::sim::detail {
namespace {

std::int64_t time_at(const std::vector<SimTime>& times, std::size_t s) {
  return times.empty() ? 0 : times[s].ps;
}

std::int64_t activation_of(const StageFacts& stage, const PipelineCosts& costs) {
  return stage.by_rule ? bytes_at(costs.activation, stage.index) : 0;
}

}  // namespace

PassClass forward_class(const StageFacts& stage, const PipelineCosts& costs) {
  const std::size_t s = stage.index;
  PassClass forward;
  forward.duration = costs.forward[s].ps;
  forward.first_extra = time_at(costs.first_forward_extra, s);
  forward.latency = stage.first ? 0 : costs.send_forward[s - 1].ps;
  forward.acquired = stage.recomputes ? bytes_at(costs.boundary, s) : activation_of(stage, costs);
  forward.released = stage.kept ? 0 : forward.acquired;
  forward.workspace = bytes_at(costs.forward_workspace, s);
  forward.lane = stage.lane(0);
  forward.input_lane = stage.first ? kNoLane : forward.lane - 1;
  forward.chunk_change = stage.counts && stage.kept && !stage.recomputes ? 1 : 0;
  return forward;
}

BackwardClasses backward_classes(const StageFacts& stage, const PipelineCosts& costs,
                                 std::int64_t boundary) {
  const std::size_t s = stage.index;
  const std::int64_t activation = activation_of(stage, costs);
  BackwardClasses classes;
  PassClass& input_grad = classes.input_grad;
  input_grad.duration = time_at(costs.input_grad, s);
  input_grad.latency = stage.last ? 0 : costs.send_backward[s].ps;
  input_grad.workspace = bytes_at(costs.backward_workspace, s);
  input_grad.lane = stage.lane(1);
  input_grad.input_lane = stage.last ? kNoLane : input_grad.lane + 1;

  PassClass& whole = classes.whole;
  whole = input_grad;
  whole.duration = time_at(costs.backward, s);
  whole.last_extra = time_at(costs.last_backward_extra, s);
  whole.released = stage.recomputes ? boundary + activation : activation;
  whole.chunk_change = stage.counts ? -1 : 0;
  whole.completes = true;

  PassClass& weight_grad = classes.weight_grad;
  weight_grad = whole;
  weight_grad.duration = time_at(costs.weight_grad, s);
  weight_grad.latency = 0;
  weight_grad.lane = stage.lane(2);
  weight_grad.input_lane = kNoLane;
  if (stage.by_rule && !costs.weight_grad_activation.empty()) {
    weight_grad.released = costs.weight_grad_activation[s].value();
    input_grad.released = whole.released - weight_grad.released;
  }
  return classes;
}

PassClass recompute_class(const StageFacts& stage, const PipelineCosts& costs) {
  PassClass recompute;
  recompute.duration = time_at(costs.recompute, stage.index);
  recompute.acquired = stage.recomputes ? activation_of(stage, costs) : 0;
  recompute.chunk_change = stage.counts && stage.recomputes ? 1 : 0;
  recompute.lane = stage.lane(3);
  return recompute;
}

PassClass optimizer_class(const StageFacts& stage, const PipelineCosts& costs) {
  PassClass optimizer;
  optimizer.duration = time_at(costs.optimizer, stage.index);
  optimizer.lane = stage.lane(4);
  return optimizer;
}

}  // namespace orrery::sim::detail
