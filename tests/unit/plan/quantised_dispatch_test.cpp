// SPDX-License-Identifier: Apache-2.0
// Kernels of plans whose tokens travel to their experts in 8 bits.
#include <gtest/gtest.h>

#include "plan/block/memory.hpp"
#include "plan/replay/memory_replay.hpp"
#include "plan/simulation/simulate.hpp"
#include "tests/unit/plan/plan_fixture.hpp"

namespace orrery::plan {
namespace {

Plan dispatching_plan(DType precision, bool quantised, std::int64_t experts = 8) {
  Plan plan = expert_plan(precision, experts);
  plan.execution.quantised_dispatch = quantised;
  return plan;
}

Seconds kernels(DType precision, bool quantised) {
  const Plan plan = dispatching_plan(precision, quantised);
  return Simulator(plan).run(plan).breakdown.compute;
}

// Bytes of all buffers that a layer asks for.
struct Asked {
  double forward = 0;
  double backward = 0;
};

Asked asked(const Plan& plan) {
  const BlockCosts costs(plan);
  const BlockContext context =
      costs.block_context(plan.network.chain[1], plan.layout_of(1), plan.micro_batch);
  const BlockMemory memory = block_memory(context, MemoryFacts(), false);
  const auto sum = [](const std::vector<MemoryEvent>& events) {
    double bytes = 0;
    for (const MemoryEvent& event : events) {
      bytes += static_cast<double>(event.bytes);
    }
    return bytes;
  };
  return {sum(memory.forward), sum(memory.backward)};
}

double routed_elements(const Plan& plan) {
  const models::NetworkSpec& spec = plan.network.spec;
  return static_cast<double>(plan.micro_batch * plan.sequence * spec.moe.top_k * spec.hidden);
}

// Tokens leave and arrive in 8 bits with their scales, gradients of what experts give back, too;
// of several experts on a rank they are sorted so. Experts in 16 bits read them widened.
TEST(QuantisedDispatch, BuffersHoldWhatTravels) {
  for (const std::int64_t experts : {8, 32}) {
    for (const DType precision : {DType::Fp8, DType::Bf16}) {
      const Plan plan = dispatching_plan(precision, true, experts);
      const Asked wide = asked(dispatching_plan(precision, false, experts));
      const Asked narrow = asked(plan);
      const double buffers = experts > 8 ? 3 : 2;
      const double widened = precision == DType::Bf16 ? 2.0 : 0.0;
      const double less = (buffers * (2.0 - (1.0 + 4.0 / 128)) - widened) * routed_elements(plan);
      EXPECT_DOUBLE_EQ(wide.forward - narrow.forward, less);
      EXPECT_DOUBLE_EQ(wide.backward - narrow.backward, less);
    }
  }
}

TEST(QuantisedDispatch, PeakFollows) {
  const auto peak = [](bool quantised) {
    Plan plan = dispatching_plan(DType::Fp8, quantised, 32);
    plan.micro_batch = 8;
    plan.batch = std::int64_t{8} * plan.dp;
    plan.blocks.front().layout.recompute = Recompute::Full;
    check_plan(plan, "test");
    return replay_memory(plan, MemoryFacts()).front().allocated;
  };
  EXPECT_LT(peak(true), peak(false));
}

// Every copy of a token, and of a gradient, was cast where it arrives; one cast before they leave
// takes the place of four.
TEST(QuantisedDispatch, CastsOnceForAllCopies) {
  EXPECT_LT(kernels(DType::Fp8, true), kernels(DType::Fp8, false));
}

// Experts in 16 bits widen what arrives.
TEST(QuantisedDispatch, WidensForExpertsOf16Bits) {
  EXPECT_GT(kernels(DType::Bf16, true), kernels(DType::Bf16, false));
}

}  // namespace
}  // namespace orrery::plan
