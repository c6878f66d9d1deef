// SPDX-License-Identifier: Apache-2.0
// Bounds on the time of plans whose passes gather parameters and reduce gradients: never above what
// the plan takes, and close to it where traffic is all that counts.
#include <gtest/gtest.h>

#include "plan/simulation/simulate.hpp"
#include "plan/stage/layout_bounds.hpp"
#include "tests/unit/plan/pipeline_fixture.hpp"

namespace orrery::plan {
namespace {

Plan sharded_states(const char* schedule, int chunks, int zero_stage) {
  Plan plan = in_pipeline(small_plan(), schedule,
                          {.dp = 4, .tp = 1, .micro_batches = 16, .chunks = chunks});
  plan.blocks.front().layout.zero_stage = zero_stage;
  return plan;
}

struct Bounded {
  Seconds without_traffic;
  Seconds bound;
  Seconds time;
};

Bounded bounded(const Plan& plan) {
  check_plan(plan, "test");
  Simulator simulator(plan);
  const StagePlacement placement = simulator.placement(plan);
  const LayoutBounds bounds =
      simulator.layout_bounds(plan, {1, plan.blocks.front().layout.zero_stage});
  return {bounds.time(plan.stage_blocks, placement, simulator.transfer_times()),
          bounds.time(plan.stage_blocks, placement, simulator.transfer_times(), 1),
          simulate(plan).iteration_time};
}

TEST(TrafficBounds, AreNeverAboveTheTime) {
  for (const auto& [schedule, chunks] :
       {std::pair{"1f1b", 1}, std::pair{"gpipe", 1}, std::pair{"interleaved", 2},
        std::pair{"breadth-first", 2}, std::pair{"hanayo", 2}, std::pair{"zb-v", 2},
        std::pair{"chimera", 1}, std::pair{"dualpipe", 1}, std::pair{"vocab-1", 1}}) {
    for (const int zero : {2, 3}) {
      for (int flags = 0; flags < 32; ++flags) {
        Plan plan = sharded_states(schedule, chunks, zero);
        Execution& execution = plan.execution;
        execution.overlap_grad_reduce = (flags & 1) != 0;
        execution.overlap_param_gather = (flags & 2) != 0;
        execution.reshard_after_forward = (flags & 4) != 0;
        execution.backward_prefetch =
            (flags & 8) != 0 ? BackwardPrefetch::Pre : BackwardPrefetch::None;
        execution.bucket_bytes = (flags & 16) != 0 ? 1 << 26 : 0;
        const Bounded result = bounded(plan);
        EXPECT_LE(result.bound, result.time) << schedule << " " << zero << " " << flags;
      }
    }
  }
}

// Of a pipeline on nodes of one GPU each with slow links.
TEST(TrafficBounds, HoldWhatTravels) {
  for (const int zero : {2, 3}) {
    Plan plan = sharded_states("1f1b", 1, zero);
    plan.cluster = topologies::load_cluster("dgx-a100:16", {"node.gpus=1", "node.scale_out.nics=1",
                                                            "node.scale_out.nic_bandwidth=1 GB/s"});
    const Bounded result = bounded(plan);
    EXPECT_LE(result.bound, result.time) << zero;
    EXPECT_GT(result.bound, 2 * result.without_traffic) << zero;
    EXPECT_GT(result.bound, 0.8 * result.time) << zero;
  }
}

}  // namespace
}  // namespace orrery::plan
