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

// A share of the layers, whether the cell calls that full or selective.
TEST(RecomputeRows, SharesOfTheLayers) {
  for (const std::string kind : {"full", "selective"}) {
    const auto layers = [&](const std::string& detail) {
      return recomputed_layers(plan_of(kind, detail));
    };
    EXPECT_EQ(layers("every 2nd layer"), 12) << kind;
    EXPECT_EQ(layers("every third layer"), 8) << kind;
    EXPECT_EQ(layers("50% of layers"), 12) << kind;
    EXPECT_EQ(layers("25%"), 6) << kind;
    EXPECT_EQ(layers("75% of the layers"), 18) << kind;
    EXPECT_EQ(layers("1 of 3 layers"), 8) << kind;
    EXPECT_EQ(layers("2/3 of layers"), 16) << kind;
  }
  EXPECT_EQ(recomputed_layers(plan_of("full (half of the layers)", "")), 12);
  EXPECT_EQ(recomputed_layers(plan_of("full", "3 layers per stage")), 6);  // of two stages
  // Megatron's uniform method keeps fewer inputs and recomputes all layers.
  EXPECT_EQ(recomputed_layers(plan_of("full", "checkpoint every 2 layers")), 24);
}

TEST(RecomputeRows, ListsOfOtherWords) {
  EXPECT_EQ(operators_of("norms+rotary", ""), "norms+rotary");
  EXPECT_EQ(operators_of("attention+mlp", ""), "attention-core+mlp-up+mlp-activation+mlp-down");
}

TEST(RecomputeRows, WhatIsNotModelledSaysSo) {
  const auto plan =
      row_plan(testing::row_of({{"recompute", "custom"}, {"recompute_detail", "tuned by hand"}}));
  ASSERT_FALSE(plan.has_value());
  EXPECT_EQ(plan.error(), "custom recomputation is not modelled");
}

}  // namespace
}  // namespace orrery::studies
