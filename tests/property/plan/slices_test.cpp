// SPDX-License-Identifier: Apache-2.0
// Random plans whose micro-batches travel in slices: they stand above all their bounds on time and
// memory, repeat bit for bit, and do the work of the uncut micro-batch.
#include <gtest/gtest.h>

#include <cmath>

#include "plan/stage/layout_bounds.hpp"
#include "plan/stage/sliced.hpp"
#include "plan/stages.hpp"
#include "tests/property/plan/plan_generator.hpp"

namespace orrery::plan::testing {
namespace {

Plan sliced_plan() {
  Plan plan = any_plan();
  BlockPlan& layout = plan.blocks.front().layout;
  plan.slices = pick({2, 4, 8, 16});
  plan.schedule = pick<std::string>({"terapipe", "seq1f1b", "slimpipe"});
  const bool chunks = plan.schedule == "slimpipe";
  if (!chunks) {
    plan.chunks = 1;
  }
  if (plan.schedule == "slimpipe") {
    plan.slices = std::max(plan.slices, plan.pp);
  } else if (coin()) {  // the second slice gives some of its tokens to the first
    plan.slice_tokens.assign(static_cast<std::size_t>(plan.slices), plan.sequence / plan.slices);
    plan.slice_tokens[0] += 16;
    plan.slice_tokens[1] -= 16;
  }
  layout.offload.activations = pick({0.0, 0.5, 1.0});
  plan.stage_blocks = even_stages(plan.network, plan.pp * plan.chunks);
  check_plan(plan, "generated");
  return plan;
}

TEST(SlicesProperty, StandAboveTheirBounds) {
  EXPECT_TRUE(rc::check([] {
    const Plan plan = sliced_plan();
    Simulator simulator(plan);
    const Simulation result = simulator.run(plan);
    const Seconds time = result.iteration_time;
    RC_ASSERT(simulator.work_bound(plan) <= simulator.lower_bound(plan));
    RC_ASSERT(simulator.lower_bound(plan) <= simulator.list_bound(plan));
    RC_ASSERT(simulator.list_bound(plan) <= time);
    const int zero = plan.blocks.front().layout.zero_stage;
    LayoutBounds bounds = simulator.layout_bounds(plan, {zero});
    const StagePlacement place = simulator.placement(plan);
    RC_ASSERT(bounds.least_time(false, false) <= time);
    RC_ASSERT(bounds.time(plan.stage_blocks, place, simulator.transfer_times()) <=
              simulator.lower_bound(plan));
    ByteCount fullest;
    for (const StageMemory& stage : result.memory) {
      fullest = std::max(fullest, stage.total());
    }
    RC_ASSERT(bounds.least_memory(0, false) <= fullest);
    RC_ASSERT(bounds.memory(plan.stage_blocks, place).front() <= fullest);
    RC_ASSERT(bounds.time_within(plan.stage_blocks, place, 0, fullest) <= time);
    const std::vector<StageMemory> alone = simulator.memory(plan);
    for (std::size_t stage = 0; stage < alone.size(); ++stage) {
      RC_ASSERT(alone[stage].total() == result.memory[stage].total());
    }
    RC_ASSERT(simulate(read_plan(to_json(plan), "again"), {.record_spans = true}).iteration_time ==
              time);
  }));
}

TEST(SlicesProperty, CopiesNeverHelp) {
  EXPECT_TRUE(rc::check([] {
    Plan plan = sliced_plan();
    const Simulation away = simulate(plan);
    plan.blocks.front().layout.offload = {};
    const Simulation here = simulate(plan);
    RC_ASSERT(away.iteration_time >= here.iteration_time);
    for (std::size_t stage = 0; stage < here.memory.size(); ++stage) {
      RC_ASSERT(away.memory[stage].total() + away.memory[stage].host >= here.memory[stage].total());
    }
  }));
}

TEST(SlicesProperty, DoTheWorkOfTheMicroBatch) {
  EXPECT_TRUE(rc::check([] {
    Plan plan = sliced_plan();
    plan.execution.fused_attention = true;  // else whole scores are computed, masked ones too
    // Adapters of experts meet the tokens of one rank: whole rows an expert where slices are equal.
    if (plan.network.spec.moe.experts > 0 && plan.network.spec.adapters.rank > 0) {
      plan.slice_tokens.clear();
    }
    BlockCosts costs(plan);
    const BlockPlan& layout = plan.blocks.front().layout;
    for (std::size_t block = 0; block < plan.network.blocks.size(); ++block) {
      const int index = static_cast<int>(block);
      const BlockCost& whole = costs.of(index, layout, plan.micro_batch);
      double forward = 0;
      double backward = 0;
      for (const Slice& slice : slices_of(plan)) {
        const BlockCost& part = costs.of(index, layout, plan.micro_batch, slice);
        forward += part.forward.flops.value();
        backward += part.backward.flops.value();
      }
      RC_ASSERT(std::abs(forward - whole.forward.flops.value()) <=
                1e-12 * whole.forward.flops.value());
      RC_ASSERT(std::abs(backward - whole.backward.flops.value()) <=
                1e-12 * whole.backward.flops.value());
    }
  }));
}

// What slices take on the way to the backward is given back: checked at the end of slice_peaks().
TEST(SlicesProperty, MemoryReturnsToItsStart) {
  EXPECT_TRUE(rc::check([] {
    const Plan plan = sliced_plan();
    Simulator simulator(plan);
    BlockCosts costs(plan);
    const SliceCosts slices = slice_costs(plan, stage_contents(plan),
                                          [&](const StageContent& content, const Slice& slice) {
                                            return add_up_stage(content, plan, costs, slice);
                                          });
    const std::vector<SlicePeak> peaks = slice_peaks(simulator.order(plan), slices);
    for (const SlicePeak& peak : peaks) {
      RC_ASSERT(peak.total() > ByteCount());
    }
  }));
}

}  // namespace
}  // namespace orrery::plan::testing
