// SPDX-License-Identifier: Apache-2.0
// Memory of weights that products in 8 bits cast for themselves, pass by pass: rows while the
// forward of a product runs, rows and columns while its backward does, and none of them between.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "plan/block/memory.hpp"
#include "plan/block/quantised_casts.hpp"
#include "plan/block/states.hpp"
#include "plan/replay/memory_replay.hpp"
#include "plan/simulation/simulate.hpp"
#include "tests/unit/plan/plan_fixture.hpp"

namespace orrery::plan {
namespace {

constexpr std::int64_t kCastHidden = 1024;
constexpr std::int64_t kLargest =
    4 * kCastHidden * kCastHidden / 4;  // up or down, on one of 4 ranks

Plan gathered_plan() {
  models::NetworkSpec spec = small_spec();
  spec.vocab = 512;  // layers have the largest weights
  Plan plan = small_plan(spec, "hgx-h100:2");
  plan.precision = DType::Fp8;
  plan.blocks.front().layout.zero_stage = 3;
  check_plan(plan, "test");
  return plan;
}

StateBytes states_of_layer(const Plan& plan) {
  BlockCosts costs(plan);
  const BlockPlan& layout = plan.blocks.front().layout;
  const BlockCost& layer = costs.of(plan.network.chain[1], layout, plan.micro_batch, {});
  return state_bytes(layer, layout, mesh_of(layout, plan.dp), plan.execution, plan.precision,
                     false);
}

TEST(PassCasts, AreThoseOfTheLargestProduct) {
  Plan plan = gathered_plan();
  const auto casts = [&] { return states_of_layer(plan).pass_casts.value(); };
  EXPECT_EQ(casts(), 2 * kLargest);  // rows and columns
  plan.cluster.gpu.any_fp8_layout = true;
  EXPECT_EQ(casts(), kLargest);
  plan.cluster.gpu.any_fp8_layout = false;
  plan.execution.quantised_gather = true;  // read as they were gathered
  EXPECT_EQ(casts(), 0);
  plan.execution.quantised_gather = false;
  plan.precision = DType::Bf16;
  EXPECT_EQ(casts(), 0);
  plan.precision = DType::Fp8;
  plan.blocks.front().layout.zero_stage = 1;  // they last from step to step
  EXPECT_EQ(casts(), 0);
  plan.execution.casts_weights = true;  // unless every product casts its own
  EXPECT_EQ(casts(), 2 * kLargest);
  plan.execution.casts_weights = false;
  plan.blocks.front().layout.offload.optimizer = Tier::Host;
  plan.blocks.front().layout.offload.parameters = Tier::Host;
  EXPECT_EQ(casts(), 2 * kLargest);
}

// A stage has one product's at a time, beside what it gathers.
TEST(PassCasts, AreInTheWorkspace) {
  Plan plan = gathered_plan();
  const auto workspace = [&] { return simulate(plan).memory.front().workspace.value(); };
  const std::int64_t with = workspace();
  plan.execution.quantised_gather = true;
  BlockCosts costs(plan);
  const std::int64_t without = workspace();
  const StateBytes packed = states_of_layer(plan);
  plan.execution.quantised_gather = false;
  const StateBytes whole = states_of_layer(plan);
  EXPECT_EQ(with - without, 2 * (whole.gathered - packed.gathered).value() + 2 * kLargest);
}

struct Peak {
  std::int64_t highest = 0;
  std::int64_t left = 0;
};

Peak peak_of(const std::vector<MemoryEvent>& events, std::map<std::int32_t, std::int64_t>& live) {
  Peak peak;
  for (const auto& [buffer, bytes] : live) {
    peak.left += bytes;
  }
  peak.highest = peak.left;
  for (const MemoryEvent& event : events) {
    peak.left += event.bytes > 0 ? event.bytes : -live[event.buffer];
    live[event.buffer] = event.bytes;
    peak.highest = std::max(peak.highest, peak.left);
  }
  return peak;
}

TEST(PassCasts, LiveWhileTheirProductRuns) {
  Plan plan = gathered_plan();
  plan.sequence = 64;  // weights are most of what a layer has
  BlockCosts costs(plan);
  const BlockContext context =
      costs.block_context(plan.network.chain[1], plan.blocks.front().layout, plan.micro_batch, {});
  const BlockMemory without = block_memory(context, {}, true, false);
  const BlockMemory with = block_memory(context, {}, true, true);
  std::map<std::int32_t, std::int64_t> live;
  std::map<std::int32_t, std::int64_t> casts;
  const Peak forward = peak_of(without.forward, live);
  const Peak cast_forward = peak_of(with.forward, casts);
  EXPECT_EQ(cast_forward.left, forward.left);  // nothing waits for the backward
  EXPECT_LE(cast_forward.highest - forward.highest, kLargest);
  EXPECT_GT(cast_forward.highest - forward.highest, kLargest / 2);
  const Peak backward = peak_of(without.backward, live);
  const Peak cast_backward = peak_of(with.backward, casts);
  EXPECT_EQ(cast_backward.left, backward.left);
  EXPECT_LE(cast_backward.highest - backward.highest, 2 * kLargest);
  EXPECT_GT(cast_backward.highest - backward.highest, kLargest / 2);
}

// Products that read any layout cast no columns; nothing else of a replay differs, but for what the
// allocator does not split off (up to 1 MiB).
TEST(PassCasts, AreReplayed) {
  Plan plan = gathered_plan();
  plan.sequence = 64;
  const auto allocated = [&] { return replay_memory(plan).front().allocated.value(); };
  const std::int64_t with_columns = allocated();
  plan.cluster.gpu.any_fp8_layout = true;
  const std::int64_t columns = with_columns - allocated();
  EXPECT_GT(columns, 0);
  EXPECT_LE(columns, kLargest + (1 << 20));
}

}  // namespace
}  // namespace orrery::plan
