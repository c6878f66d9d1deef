// SPDX-License-Identifier: Apache-2.0
// Which operators of which layers a row recomputes, in the words of its source.
#include <gmock/gmock.h>

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

TEST(RecomputeRows, SharesInOtherNotations) {
  const auto layers = [](const std::string& cell) { return recomputed_layers(plan_of(cell, "")); };
  EXPECT_EQ(layers("0.5"), 12);
  EXPECT_EQ(layers("8/16"), 12);
  EXPECT_EQ(layers("12 of 24"), 12);
  EXPECT_EQ(layers("12.5%"), 3);
  EXPECT_EQ(layers("all 24 layers"), 24);
  EXPECT_EQ(layers("uniform, 2 layers"), 24);
  EXPECT_EQ(layers("Y"), 24);
  EXPECT_EQ(layers("N"), 0);
}

// Megatron-LM until 2021 and GPT-NeoX keep the input of every so many layers and recompute all.
TEST(RecomputeRows, IntervalsAndExceptions) {
  for (const std::string detail :
       {"checkpoint-num-layers 1", "--checkpoint-activations --checkpoint-num-layers 1",
        "1 layer granularity", "checkpoint interval 1 layer"}) {
    EXPECT_EQ(recomputed_layers(plan_of("full", detail)), 24) << detail;
    EXPECT_THAT(testing::predicted({{"recompute", "full"}, {"recompute_detail", detail}}).assumed,
                ::testing::IsEmpty())
        << detail;
  }
  EXPECT_EQ(recomputed_layers(plan_of("full", "disabled for last 2 layers")), 22);
  EXPECT_EQ(recomputed_layers(plan_of("full", "all but 6 layers")), 18);
  EXPECT_THAT(
      testing::predicted({{"recompute", "full"}, {"recompute_detail", "recompute_num_layers=1"}})
          .assumed,
      ::testing::ElementsAre(
          "recompute_num_layers 1 without a method as block: 1 layer of a stage"));
}

// What is read in one of several ways, or not at all, is said.
TEST(RecomputeRows, WhatWordsLeaveOpenIsRemarked) {
  const auto remarks = [](const std::string& cell, const std::string& detail) {
    return testing::predicted({{"recompute", cell}, {"recompute_detail", detail}}).assumed;
  };
  using ::testing::ElementsAre;
  EXPECT_THAT(remarks("ful", ""), ElementsAre("recompute ful as full"));
  EXPECT_THAT(remarks("0.5", ""), ElementsAre("recompute 0.5 as 50% of layers"));
  EXPECT_THAT(remarks("first 12 of 24 layers", ""),
              ElementsAre("recomputation \"first 12 of 24 layers\" as 1 of every 2 layers"));
  EXPECT_THAT(remarks("full", "first 20 layers"),
              ElementsAre("recomputation of 20 layers as of all 12 of a stage"));
  EXPECT_THAT(remarks("first 20 layers", ""),
              ElementsAre("recomputation of 20 layers as of all 12 of a stage"));
  EXPECT_THAT(remarks("none", "every 2nd layer"),
              ElementsAre("recompute none, not \"every 2nd layer\""));
  EXPECT_THAT(remarks("none (fits)", "no checkpointing"), ::testing::IsEmpty());
  EXPECT_THAT(remarks("full", "50"), ElementsAre("recompute_detail \"50\" as not stated"));
  EXPECT_THAT(remarks("full, n layers", ""),
              ElementsAre("recompute_detail \"full, n layers\" as not stated"));
  EXPECT_THAT(remarks("selective 2", ""),
              ElementsAre("recompute_detail \"selective 2\" as not stated"));
  const std::string offload =
      "offload in \"selective + cpu offload\" as not stated: of which tensors?";
  EXPECT_THAT(remarks("selective + CPU offload", ""), ElementsAre(offload));
  for (const std::string clear :
       {"uniform, 1 layer", "all 24 layers", "3 layers per stage", "every 2nd layer",
        "block, 4 layers", "25% of layers", "FlashAttention-2"}) {
    EXPECT_THAT(remarks("full", clear), ::testing::IsEmpty()) << clear;
  }
}

TEST(RecomputeRows, EveryLayerIsAllOfThem) {
  for (const char* words :
       {"checkpoint every layer", "recompute every layer", "every block",
        "checkpointing every transformer layer", "each layer", "GC", "ckpt", "rematerialization",
        "100% layers", "100 % of the layers", "full, 100% layers", "24/24 layers", "6 of 6 layers",
        "all transformer layers"}) {
    EXPECT_EQ(recomputed_layers(plan_of(words, "")), 24) << words;
  }
  EXPECT_EQ(recomputed_layers(plan_of("checkpoint every 2nd layer", "")), 12);
  EXPECT_EQ(recomputed_layers(plan_of("every other layer", "")), 12);
  EXPECT_EQ(recomputed_layers(plan_of("half of all transformer layers", "")), 12);
  EXPECT_EQ(operators_of("attention of every layer", ""), "selective");
  EXPECT_EQ(operators_of("op-level SAC", ""), "products");
}

TEST(RecomputeRows, ListsOfOtherWords) {
  EXPECT_EQ(operators_of("norms+rotary", ""), "norms+rotary");
  EXPECT_EQ(operators_of("attention+mlp", ""), "attention-core+mlp-up+mlp-activation+mlp-down");
}

TEST(RecomputeRows, WhatIsNotModelledSaysSo) {
  const auto plan =
      row_plan(testing::row_of({{"recompute", "custom"}, {"recompute_detail", "tuned by hand"}}));
  ASSERT_FALSE(plan.has_value());
  EXPECT_EQ(plan.error(), "recomputation \"tuned by hand\" is not modelled");
  for (const std::string words : {"200%", "-5%", "%", "(", "full on 2 of 8 stages", "layers 0-3",
                                  "all but 2 layers", "dynamic"}) {
    const auto refused = row_plan(testing::row_of({{"recompute", words}}));
    ASSERT_FALSE(refused.has_value()) << words;
    EXPECT_EQ(refused.error(), "recomputation \"" + words + "\" is not modelled");
  }
}

}  // namespace
}  // namespace orrery::studies
