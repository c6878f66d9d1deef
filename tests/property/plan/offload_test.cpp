// SPDX-License-Identifier: Apache-2.0
// Plans at random with tensors that leave the device: bytes are conserved over the tiers, copies
// never make a plan faster, and the search's bounds hold.
#include "plan/offload.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "plan/simulation/simulate.hpp"
#include "tests/property/plan/plan_generator.hpp"

namespace orrery::plan::testing {
namespace {

Plan any_offloaded_plan() {
  Plan plan = any_plan();
  Offload& offload = plan.blocks.front().layout.offload;
  offload.activations = pick({0.0, 0.3, 1.0});
  if (coin()) {
    offload.optimizer = Tier::Host;
    if (plan.blocks.front().layout.zero_stage >= 2 && coin()) {
      offload.gradients = Tier::Host;
    }
    if (coin()) {
      offload.parameters = Tier::Host;
    }
  }
  check_plan(plan, "generated");
  return plan;
}

Plan on_device(Plan plan) {
  plan.blocks.front().layout.offload = {};
  return plan;
}

TEST(OffloadProperty, BytesAreConservedOverTheTiers) {
  EXPECT_TRUE(rc::check([] {
    const Plan plan = any_offloaded_plan();
    const std::vector<StageMemory> away = Simulator(plan).memory(plan);
    const std::vector<StageMemory> here = Simulator(plan).memory(on_device(plan));
    for (std::size_t stage = 0; stage < away.size(); ++stage) {
      const auto lasting = [](const StageMemory& memory) {
        return memory.parameters + memory.gradients + memory.optimizer + memory.activations +
               memory.host + memory.disk;
      };
      // Shares of activations are rounded block by block; peaks of chunks need not coincide.
      const double before = static_cast<double>(lasting(here[stage]).value());
      RC_ASSERT(static_cast<double>(lasting(away[stage]).value()) >= before * (1 - 1e-6) - 1e4);
      RC_ASSERT(away[stage].parameters <= here[stage].parameters);
      RC_ASSERT(away[stage].activations <= here[stage].activations);
      RC_ASSERT(away[stage].optimizer <= here[stage].optimizer);
    }
  }));
}

// Buffers of what leaves are never larger than that.
TEST(OffloadProperty, MoreThatLeavesNeverTakesMoreOfTheDevice) {
  EXPECT_TRUE(rc::check([] {
    Plan plan = any_offloaded_plan();
    if (plan.pp > 1 && plan.chunks == 1 && coin()) {
      plan.schedule = "zb-h1";
    }
    plan.execution.gathers_in_flight = pick({0, 1, 2, 5});
    check_plan(plan, "generated");
    double& share = plan.blocks.front().layout.offload.activations;
    share = 0;
    std::vector<StageMemory> before = Simulator(plan).memory(plan);
    for (const double more : {0.2, 0.6, 1.0}) {
      share = more;
      const std::vector<StageMemory> now = Simulator(plan).memory(plan);
      for (std::size_t stage = 0; stage < now.size(); ++stage) {
        // Shares are rounded block by block.
        RC_ASSERT(now[stage].total() <= before[stage].total() + ByteCount(1024));
      }
      before = now;
    }
  }));
}

TEST(OffloadProperty, CopiesNeverHelp) {
  EXPECT_TRUE(rc::check([] {
    Plan plan = any_offloaded_plan();
    plan.blocks.front().layout.offload.optimizer = Tier::Device;
    plan.blocks.front().layout.offload.gradients = Tier::Device;
    plan.blocks.front().layout.offload.parameters = Tier::Device;
    const Simulation away = simulate(plan);
    const Simulation here = simulate(on_device(plan));
    RC_ASSERT(away.iteration_time.value() >= here.iteration_time.value() * (1 - 1e-9));
  }));
}

TEST(OffloadProperty, BoundsHold) {
  EXPECT_TRUE(rc::check([] {
    const Plan plan = any_offloaded_plan();
    Simulator simulator(plan);
    const double time = simulator.run(plan).iteration_time.value();
    RC_ASSERT(simulator.lower_bound(plan).value() <= time * (1 + 1e-9));
    RC_ASSERT(simulator.work_bound(plan).value() <= time * (1 + 1e-9));
  }));
}

TEST(OffloadProperty, DocumentsRepeatTheTime) {
  EXPECT_TRUE(rc::check([] {
    const Plan plan = any_offloaded_plan();
    const Plan back = read_plan(to_json(plan), "generated");
    RC_ASSERT(back.blocks == plan.blocks);
    RC_ASSERT(simulate(back).iteration_time.value() == simulate(plan).iteration_time.value());
  }));
}

}  // namespace
}  // namespace orrery::plan::testing
