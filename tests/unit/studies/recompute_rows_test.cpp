// SPDX-License-Identifier: Apache-2.0
// Which operators of which layers a row recomputes, in the words of its source.
#include <gtest/gtest.h>

#include "studies/rows/row_plan.hpp"
#include "tests/unit/studies/testing.hpp"

namespace orrery::studies {
namespace {

using plan::Recompute;
using testing::Changes;

plan::Plan plan_of(const std::string& recompute, const std::string& detail) {
  return row_plan(testing::row_of({{"recompute", recompute}, {"recompute_detail", detail}}))
      .value();
}

// Of the first layer.
std::string operators_of(const std::string& recompute, const std::string& detail) {
  return plan::recompute_text(plan_of(recompute, detail).layout_of(1));
}

int recomputed_layers(const plan::Plan& plan) {
  int layers = 0;
  for (std::size_t position = 0; position < plan.network.chain.size(); ++position) {
    const auto block = static_cast<std::size_t>(plan.network.chain[position]);
    const bool layer = plan.network.blocks[block].kind == models::BlockKind::Layer;
    const plan::BlockPlan& layout = plan.layout_of(static_cast<int>(position));
    layers += layer && layout.recompute == Recompute::Full ? 1 : 0;
  }
  return layers;
}

TEST(RecomputeRows, SelectiveIsTheAttentionCoreUnlessOperatorsAreNamed) {
  for (const std::string detail : {"", "core attention", "core_attn", "attention only"}) {
    EXPECT_EQ(operators_of("selective", detail), "selective") << detail;
  }
  EXPECT_EQ(operators_of("selective", "per-op SAC"), "products");
  EXPECT_EQ(operators_of("selective", "layernorm, moe_act"), "norms+mlp-activation");
  EXPECT_EQ(operators_of("selective", "mlp"), "mlp-up+mlp-activation+mlp-down");
}

TEST(RecomputeRows, PoliciesOfMaxTextKeepProducts) {
  EXPECT_EQ(operators_of("selective", "minimal_flash: GEMM outputs kept"),
            "norms+rotary+mlp-activation+residuals");
  EXPECT_EQ(operators_of("selective", "minimal_with_context"),
            operators_of("selective", "minimal_flash"));
  EXPECT_EQ(operators_of("custom", "minimal"), "norms+rotary+attention+mlp-activation+residuals");
}

TEST(RecomputeRows, SomeLayers) {
  EXPECT_EQ(recomputed_layers(plan_of("full", "")), 24);
  EXPECT_EQ(recomputed_layers(plan_of("full", "uniform, 1 layer")), 24);
  EXPECT_EQ(recomputed_layers(plan_of("selective", "every 2nd layer")), 12);
  EXPECT_EQ(recomputed_layers(plan_of("selective", "every other layer")), 12);
  EXPECT_EQ(recomputed_layers(plan_of("selective", "every 3rd layer")), 8);
  EXPECT_EQ(recomputed_layers(plan_of("full", "block, 5 layers")), 10);  // of two stages
  EXPECT_EQ(recomputed_layers(plan_of("full", "recompute_num_layers=4")), 8);
}

TEST(RecomputeRows, WhatIsNotModelledSaysSo) {
  const auto plan =
      row_plan(testing::row_of({{"recompute", "custom"}, {"recompute_detail", "tuned by hand"}}));
  ASSERT_FALSE(plan.has_value());
  EXPECT_EQ(plan.error(), "custom recomputation is not modelled");
}

}  // namespace
}  // namespace orrery::studies
