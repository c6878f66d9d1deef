// SPDX-License-Identifier: Apache-2.0
// Replicas on unlike GPUs that meet in every micro-batch: those that share states.
#include <gtest/gtest.h>

#include "tests/unit/plan/mixed_fixture.hpp"

namespace orrery::plan {
namespace {

Seconds time_of(const MixedPlan& plan) {
  check_mixed_plan(plan, "plan");
  return MixedSimulator(plan).run(plan).iteration_time;
}

std::shared_ptr<MixedMachine> copy_of(const MixedPlan& plan) {
  return std::make_shared<MixedMachine>(*plan.machine);
}

// A second stage that waits for its parameters waits no longer where the first one is faster.
TEST(MixedStep, AFasterFirstStageLeavesNoLongerWait) {
  MixedPlan plan = mixed_plan("hgx-h100:1+dgx-a100:1");
  auto slow = copy_of(plan);
  slow->cluster.pools.push_back({"last", slow->cluster.pools[0].cluster});
  slow->profiles.push_back(slow->profiles[0]);
  // The gather of the last stage takes longer than the first stage's forward.
  topologies::ScaleUp& links = slow->cluster.pools[2].cluster.node.scale_up;
  links.nccl_bandwidth = BytesPerSecond(1e9);
  links.in_switch_reduction = false;
  auto fast = std::make_shared<MixedMachine>(*slow);
  slow->cluster.pools[0].cluster.gpu = slow->cluster.pools[1].cluster.gpu;
  slow->profiles[0] = slow->profiles[1];
  plan.shape.blocks.front().layout.zero_stage = 2;
  plan.groups = {{.replicas = 1, .micro_batches = 32, .pools = {0, 2}},
                 {.replicas = 1, .micro_batches = 32, .pools = {1, 2}}};
  plan.machine = fast;
  const Seconds of_fast = time_of(plan);
  plan.machine = slow;
  EXPECT_LE(of_fast, time_of(plan));
}

}  // namespace
}  // namespace orrery::plan
