// SPDX-License-Identifier: Apache-2.0
// Buffers of the virtual stages of a device: one of them runs at a time, so that the largest
// counts, and bounds must not count more.
#include <gtest/gtest.h>

#include <algorithm>

#include "plan/replay/memory_replay.hpp"
#include "plan/simulation/simulate.hpp"
#include "plan/stage/layout_bounds.hpp"
#include "plan/stage/stage.hpp"
#include "plan/stages.hpp"
#include "tests/unit/plan/pipeline_fixture.hpp"

namespace orrery::plan {
namespace {

constexpr double kLayerParameters = 12.0 * 1024 * 1024;

// Two chunks of two layers on each of four devices, of which the second has neither end.
Plan sharded_chunks(const char* schedule, int zero_stage, int chunks = 2) {
  Plan plan = in_pipeline(small_plan(), schedule,
                          {.dp = 4, .tp = 1, .micro_batches = 16, .chunks = chunks});
  plan.network = [] {
    models::NetworkSpec spec = small_spec();
    spec.layers = 16;
    return models::build_network(spec, "test");
  }();
  plan.stage_blocks = even_stages(plan.network, plan.pp * chunks);
  plan.blocks.front().count = static_cast<int>(plan.network.chain.size());
  plan.blocks.front().layout.zero_stage = zero_stage;
  check_plan(plan, "test");
  return plan;
}

double workspace_of_second(const Plan& plan) {
  return static_cast<double>(Simulator(plan).memory(plan)[1].workspace.value());
}

TEST(DeviceBuffers, AreThoseOfOneChunkAtATime) {
  for (const char* schedule : {"interleaved", "zb-v", "hanayo"}) {
    Plan plan = sharded_chunks(schedule, 3);
    const double in_flight = 2 * 2.0 * kLayerParameters;  // two layers' parameters
    const double gradients = 4.0 * kLayerParameters;      // and a layer's gradients
    EXPECT_NEAR(workspace_of_second(plan), in_flight + gradients, 0.01 * in_flight) << schedule;
    plan.execution.gathers_in_flight = 0;  // all of a chunk
    EXPECT_NEAR(workspace_of_second(plan), in_flight + gradients, 0.01 * in_flight) << schedule;
    plan.blocks.front().layout.zero_stage = 2;
    EXPECT_NEAR(workspace_of_second(plan), gradients, 0.01 * gradients) << schedule;
  }
}

// What stays gathered is there of all chunks, and passes that run as one have buffers each.
TEST(DeviceBuffers, OfAllChunksThatAreThereAtOnce) {
  Plan plan = sharded_chunks("interleaved", 3);
  const double layer = 2.0 * kLayerParameters;
  plan.execution.reshard_after_forward = false;
  EXPECT_NEAR(workspace_of_second(plan), 4 * layer + 2 * layer, 0.01 * layer);
  plan.execution.reshard_after_forward = true;
  plan.schedule = "dualpipe-v";
  EXPECT_NEAR(workspace_of_second(plan), 2 * (2 * layer + 2 * layer), 0.01 * layer);
}

// The replay, which knows what is there at any time, needs no more for two chunks either.
TEST(DeviceBuffers, FollowTheReplay) {
  const Plan plan = sharded_chunks("interleaved", 3);
  const StageMemory counted = Simulator(plan).memory(plan)[1];
  const double replayed = static_cast<double>(replay_memory(plan)[1].allocated.value());
  EXPECT_NEAR(replayed / static_cast<double>(counted.allocated().value()), 1.0, 0.06);
}

// Two blocks' part of what leaves comes and goes, however many chunks there are.
TEST(DeviceBuffers, OfWhatLeavesAreTwoBlocks) {
  const auto copied = [](const char* schedule, int chunks) {
    Plan plan = sharded_chunks(schedule, 1, chunks);
    const double before = workspace_of_second(plan);
    plan.blocks.front().layout.offload.activations = 1;
    return workspace_of_second(plan) - before;
  };
  const double one = copied("1f1b", 1);
  EXPECT_GT(one, 0);
  EXPECT_EQ(copied("interleaved", 2), one);
}

// A unit that is larger than the others is gathered beside those before and after it, once.
TEST(DeviceBuffers, OfTheLargestConsecutiveBlocks) {
  Plan plan = sharded_chunks("1f1b", 3, 1);
  BlockCosts costs(plan);
  const double layer = 2.0 * kLayerParameters;
  const double table = 2.0 * (51200 + 2048) * 1024;  // of tokens and positions
  const auto gathered = [&](std::size_t stage, int in_flight) {
    plan.execution.gathers_in_flight = in_flight;
    const StageCost cost = add_up_stage(stage_contents(plan)[stage], plan, costs);
    return static_cast<double>(cost.buffers.gathered.value());
  };
  for (const int in_flight : {1, 2, 3}) {
    EXPECT_NEAR(gathered(0, in_flight), table + (in_flight - 1) * layer, 0.01 * layer);
    EXPECT_NEAR(gathered(1, in_flight), in_flight * layer, 0.01 * layer);
  }
  EXPECT_NEAR(gathered(0, 0), table + (plan.stage_blocks[0] - 1) * layer, 0.01 * layer);
}

// What search prunes by is never above what a plan is said to take.
TEST(DeviceBuffers, BoundsCountNoMore) {
  for (const auto& [schedule, chunks] :
       {std::pair{"1f1b", 1}, std::pair{"interleaved", 2}, std::pair{"zb-v", 2},
        std::pair{"chimera", 1}, std::pair{"dualpipe", 1}, std::pair{"dualpipe-v", 2},
        std::pair{"vocab-1", 1}}) {
    for (const int zero : {1, 2, 3}) {
      for (const int in_flight : {0, 1, 2, 3}) {
        for (const bool reshards : {false, true}) {
          Plan plan = sharded_chunks(schedule, zero, chunks);
          plan.execution.gathers_in_flight = in_flight;
          plan.execution.reshard_after_forward = reshards;
          Simulator simulator(plan);
          LayoutBounds bounds = simulator.layout_bounds(plan, {zero});
          std::int64_t most = 0;
          for (const StageMemory& memory : simulator.memory(plan)) {
            most = std::max(most, memory.total().value());
          }
          EXPECT_LE(bounds.memory(plan.stage_blocks, simulator.placement(plan)).front().value(),
                    most)
              << schedule << " " << zero << " " << in_flight;
        }
      }
    }
  }
}

}  // namespace
}  // namespace orrery::plan
