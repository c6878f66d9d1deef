// SPDX-License-Identifier: Apache-2.0
// Kernels of plans whose tokens travel to their experts in 8 bits.
#include <gtest/gtest.h>

#include "plan/simulation/simulate.hpp"
#include "tests/unit/plan/plan_fixture.hpp"

namespace orrery::plan {
namespace {

Seconds kernels(DType precision, bool quantised) {
  models::NetworkSpec spec = small_spec();
  spec.moe.experts = 8;
  spec.moe.top_k = 4;
  spec.moe.ffn_hidden = 2048;
  Plan plan = small_plan(spec, "hgx-h100:1");
  plan.precision = precision;
  plan.pp = 1;
  plan.dp = 8;
  plan.stage_blocks = even_stages(plan.network, 1);
  BlockPlan layout;
  layout.ep = 8;
  plan.blocks = {{static_cast<int>(plan.network.chain.size()), layout}};
  plan.execution.quantised_dispatch = quantised;
  return Simulator(plan).run(plan).breakdown.compute;
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
