// SPDX-License-Identifier: Apache-2.0
#include "plan/stage/pipeline_floor.hpp"

#include <algorithm>

#include "plan/schedule_traits.hpp"

namespace orrery::plan {

SimTime pipeline_floor(const std::vector<StagePasses>& stages, const StagePlacement& placement,
                       int devices, std::int64_t micro_batches, const BesideChain& beside) {
  const std::size_t chain = stages.size();
  const std::size_t copies = placement.two_directions ? 2 : 1;
  const std::int64_t units = micro_batches / static_cast<std::int64_t>(copies);
  const auto count = static_cast<std::size_t>(devices);
  std::vector<SimTime> before_last(count, beside.before);  // work before the last gradient ends
  std::vector<SimTime> late(count, beside.late);
  std::vector<SimTime> head(count, SimTime::max());
  std::vector<SimTime> tail(count, SimTime::max());
  for (std::size_t copy = 0; copy < copies; ++copy) {
    SimTime before;
    SimTime after;
    for (std::size_t stage = 0; stage < chain; ++stage) {
      const std::size_t device = placement.device_of[copy * chain + stage];
      const StagePasses& passes = stages[stage];
      before_last[device] += (passes.forward + passes.backward - passes.late) * units;
      late[device] += passes.late * units;
      head[device] = std::min(head[device], before);
      tail[device] = std::min(tail[device], after);
      before += passes.slice_forward + passes.send;
      // Frozen stages, which come first, take no gradient.
      const bool trained = passes.backward > SimTime{};
      after += passes.slice_backward - std::min(passes.slice_backward, passes.late) +
               (trained ? passes.send_back : SimTime{});
    }
  }
  SimTime bound;
  for (std::size_t device = 0; device < count; ++device) {
    if (!placement.flushes) {  // the pace of the busiest
      bound = std::max(bound, before_last[device] + late[device]);
    } else if (head[device] < SimTime::max()) {  // holds a stage
      bound = std::max(bound,
                       head[device] + before_last[device] + std::max(late[device], tail[device]));
    }
  }
  return bound;
}

void repeat_passes(double runs, StagePasses& passes) {
  const auto parts = static_cast<std::int64_t>(runs);
  passes.slice_forward = passes.forward;
  passes.slice_backward = passes.backward;
  passes.forward = passes.forward * parts;
  passes.backward = passes.backward * parts;
}

void cut_backward(const Plan& plan, const SplitTimes& cut, SimTime whole, StagePasses& passes) {
  if (schedule_traits(plan).cuts_every_backward) {
    passes.backward += cut.input_grad + cut.weight_grad - whole;
    passes.slice_backward = passes.backward;
    passes.late = cut.weight_grad;
  } else {
    passes.late = std::clamp(whole - cut.input_grad, SimTime{}, passes.backward);
  }
}

// The last stage's gradient of a micro-batch waits for all shards of its logits, with two barriers
// or none for their gradients, too; with one barrier a shard's gradient runs before its next logits
// do, so that one may come after the device's last gradient. Look-ups may run before its first
// stage, the gradients of the table at any time.
BesideChain shard_work(const Plan& plan, const StageCost& output, const StageCost& input) {
  const std::int64_t count = plan.num_micro_batches();
  const bool waits = schedule_traits(plan).output_barriers != 1;
  BesideChain work;
  work.before = output.forward * count + output.backward * (waits ? count : count - 1);
  work.late = input.backward * count + (waits ? SimTime{} : output.backward);
  return work;
}

}  // namespace orrery::plan
