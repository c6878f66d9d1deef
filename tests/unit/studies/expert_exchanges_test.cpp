// SPDX-License-Identifier: Apache-2.0
// How tokens reach their experts: beside other passes, once to a node, in 8 bits, as rows and the
// recipes of Megatron-Bridge have it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "studies/rows/bridge_layouts.hpp"
#include "studies/rows/bridge_recipes.hpp"
#include "studies/rows/routed_load.hpp"
#include "studies/rows/row_choice.hpp"
#include "studies/rows/stated_overlap.hpp"
#include "tests/unit/studies/testing.hpp"

namespace orrery::studies {
namespace {

using testing::Changes;
using testing::execution_of;
using testing::row_of;

Changes mixture(Changes changes = {}) {
  changes.insert({"model_family", "llama"});
  return testing::mixture(std::move(changes));
}

std::string schedule_of(const Changes& changes) {
  return row_plan(row_of(mixture(changes))).value().schedule;
}

TEST(ExpertExchanges, AreHiddenWhereTheRowSaysSo) {
  for (const char* words :
       {"EP A2A overlap", "overlap_moe_expert_parallel_comm=True", "moe_a2a_overlap", "1F1B A2A",
        "expert-parallel all-to-all overlapped", "EP: yes"}) {
    EXPECT_EQ(schedule_of({{"overlap", words}}), kJoinedPasses) << words;
    EXPECT_TRUE(unread_overlap(row_of(mixture({{"overlap", words}}))).empty()) << words;
  }
  for (const char* words : {"", "none", "moe_a2a_overlap=False", "EP all-to-all exposed",
                            "CP A2A overlap", "p2p overlap", "shared expert overlap", "EP: no"}) {
    EXPECT_EQ(schedule_of({{"overlap", words}}), "interleaved") << words;
  }
  EXPECT_EQ(schedule_of({{"notes", "overlap_moe_expert_parallel_comm True"}}), kJoinedPasses);
}

TEST(ExpertExchanges, HideNothingWithoutThem) {
  EXPECT_EQ(schedule_of({{"overlap", "EP A2A overlap"}, {"ep", "1"}}), "interleaved");
  // Stages that do not divide the micro-batches cannot join passes.
  EXPECT_NE(schedule_of(
                {{"overlap", "EP A2A overlap"}, {"num_microbatches", "9"}, {"global_batch", "36"}}),
            kJoinedPasses);
  EXPECT_EQ(schedule_of({{"overlap", "EP A2A overlap"},
                         {"pp", "1"},
                         {"vpp", "1"},
                         {"dp", "8"},
                         {"schedule", "none"},
                         {"num_microbatches", ""}}),
            kJoinedPasses);
}

TEST(ExpertExchanges, SharedExpertsRunBesideThem) {
  const auto runs = [](const std::string& words) {
    return execution_of(mixture({{"overlap", words}})).overlap_shared_experts;
  };
  EXPECT_TRUE(runs("moe_shared_expert_overlap=True"));
  EXPECT_FALSE(runs("moe_shared_expert_overlap=False"));
  EXPECT_FALSE(runs(""));
}

TEST(ExpertExchanges, LibrariesSendOnceToANode) {
  for (const char* cell : {"notes", "overlap", "variant", "framework"}) {
    const std::string words = std::string(cell) == "framework" ? "Megatron-LM + DeepEP" : "DeepEP";
    EXPECT_TRUE(execution_of(mixture({{cell, words}})).deduplicated_dispatch) << cell;
  }
  EXPECT_TRUE(execution_of(mixture({{"notes", "node-limited routing"}})).deduplicated_dispatch);
  EXPECT_TRUE(execution_of(mixture({{"notes", "HybridEP"}})).deduplicated_dispatch);
  EXPECT_FALSE(execution_of(mixture({{"notes", "without DeepEP"}})).deduplicated_dispatch);
  EXPECT_FALSE(execution_of(mixture({{"notes", "deduplicated data"}})).deduplicated_dispatch);
  EXPECT_FALSE(execution_of({{"notes", "DeepEP"}}).deduplicated_dispatch);  // no experts
}

TEST(ExpertExchanges, TokensTravelIn8Bits) {
  EXPECT_TRUE(execution_of(mixture({{"notes", "FP8 dispatch"}})).quantised_dispatch);
  EXPECT_FALSE(execution_of(mixture({{"notes", "no fp8 dispatch"}})).quantised_dispatch);
  const plan::Execution of_report =
      execution_of(mixture({{"framework", "HAI-LLM"}, {"precision", "fp8"}}));
  EXPECT_TRUE(of_report.quantised_dispatch);
  EXPECT_TRUE(of_report.deduplicated_dispatch);
}

Changes bridge(const std::string& release, const std::string& network, const std::string& gpu,
               const std::string& precision) {
  return mixture({{"framework", "Megatron-Bridge " + release},
                  {"model_name", network},
                  {"gpu", gpu},
                  {"precision", precision},
                  {"confidence", "partial"},
                  {"recompute", ""},
                  {"overlap", "recipe-dependent"}});
}

TEST(ExpertExchanges, RecipesHideThem) {
  const auto hides = [](const Changes& row) {
    return row_plan(row_of([&] {
             Changes complete = row;
             complete["recompute"] = "none";
             return complete;
           }()))
               .value()
               .schedule == kJoinedPasses;
  };
  EXPECT_TRUE(hides(bridge("25.11", "qwen3-235b-a22b-x", "H100-80GB-SXM", "fp8")));
  EXPECT_FALSE(hides(bridge("25.11", "qwen3-235b-a22b-x", "GB200-186GB", "fp8")));
  EXPECT_FALSE(hides(bridge("26.02", "qwen3-235b-a22b-x", "B200-180GB-SXM", "mxfp8")));
  Changes stated = bridge("25.11", "qwen3-235b-a22b-x", "H100-80GB-SXM", "fp8");
  stated["overlap"] = "moe_a2a_overlap=False";
  EXPECT_FALSE(hides(stated));
  stated["overlap"] = "";
  stated["framework"] = "Megatron-Bridge";  // which release?
  EXPECT_FALSE(hides(stated));
}

TEST(ExpertExchanges, RecipesRecomputeOperatorsAndChooseTheLibrary) {
  Measurement row = row_of(bridge("26.02", "deepseek-v3-x", "GB200-186GB", "mxfp8"));
  std::vector<std::string> assumed;
  const plan::Plan plan = chosen_plan(row, assumed).value();
  EXPECT_EQ(plan::recompute_text(plan.layout_of(1)), "qkv");
  EXPECT_TRUE(plan.execution.deduplicated_dispatch);
  EXPECT_THAT(assumed, testing::Contains("recompute mla_up_proj (the recipe's)"));
}

TEST(ExpertExchanges, RecipesChooseKernelsOfExperts) {
  const plan::Execution late =
      execution_of(bridge("26.06", "deepseek-v3-x", "GB200-186GB", "mxfp8"));
  EXPECT_TRUE(late.fused_permutation);
  EXPECT_TRUE(late.fused_experts);
  EXPECT_FALSE(late.fp8_attention);
  EXPECT_TRUE(execution_of(bridge("26.06", "deepseek-v3-x", "GB300-288GB", "mxfp8")).fp8_attention);
  EXPECT_TRUE(late.fused_router);
  EXPECT_FALSE(late.expert_kernels);
  EXPECT_FALSE(late.expert_padding);
  EXPECT_FALSE(late.eager_expert_bias);
  EXPECT_EQ(late.graph_scope, plan::GraphScope::Layer);
  const plan::Execution early =
      execution_of(bridge("25.11", "deepseek-v3-x", "H100-80GB-SXM", "fp8"));
  EXPECT_TRUE(early.deduplicated_dispatch);
  EXPECT_FALSE(early.fused_permutation);
  EXPECT_TRUE(early.expert_kernels);
  EXPECT_TRUE(early.expert_padding);
  EXPECT_TRUE(early.eager_expert_bias);
  EXPECT_FALSE(early.cuda_graphs);
  Changes dropped = bridge("25.09", "deepseek-v3-x", "B200-180GB-SXM", "mxfp8");
  EXPECT_TRUE(execution_of(dropped).expert_padding);
  dropped["notes"] = "(tokendrop)";
  EXPECT_FALSE(execution_of(dropped).expert_padding);
}

TEST(ExpertExchanges, ExpertsOfGptOssHaveBiases) {
  const Changes row =
      mixture({{"model_family", "gpt-oss"}, {"framework", "Megatron-Bridge 25.11"}});
  const plan::Plan plan = row_plan(row_of(row)).value();
  EXPECT_TRUE(plan.network.spec.mlp_bias);
  EXPECT_TRUE(plan.execution.eager_expert_bias);
  Changes other = row;
  other["model_family"] = "mixtral";
  EXPECT_FALSE(row_plan(row_of(other)).value().network.spec.mlp_bias);
}

// Two batches of one release have recipes of their own.
TEST(ExpertExchanges, RecipesAreOfABatch) {
  Changes row = bridge("26.06", "gpt-oss-120b-x", "B300-288GB-SXM", "mxfp8");
  row["global_batch"] = "1280";
  EXPECT_TRUE(execution_of(row).fused_permutation);
  row["global_batch"] = "512";
  EXPECT_FALSE(execution_of(row).fused_permutation);
  EXPECT_EQ(execution_of(row).graph_scope, plan::GraphScope::Attention);
}

TEST(ExpertExchanges, RecipesPredictASecondToken) {
  const auto remarks = [](const std::string& notes) {
    Changes row = bridge("26.02", "deepseek-v3", "GB200-186GB", "mxfp8");
    row["notes"] = notes;
    return recipe_remarks(row_of(row));
  };
  EXPECT_THAT(remarks(""),
              testing::ElementsAre("multi-token prediction (the recipe's) is left out"));
  EXPECT_TRUE(remarks("(w/o MTP)").empty());
}

TEST(ExpertExchanges, TablesContradictRecipes) {
  Changes row = bridge("25.11", "gpt-oss-120b-x", "B200-180GB-SXM", "bf16");
  row["ep"] = "8";
  row["tp"] = row["pp"] = row["vpp"] = "1";
  row["micro_batch"] = "4";
  row["global_batch"] = "512";
  EXPECT_THAT(recipe_contradictions(row_of(row)),
              testing::ElementsAre("ep 8, not 64 as in the recipe of 25.11"));
  row["ep"] = "64";
  EXPECT_TRUE(recipe_contradictions(row_of(row)).empty());
  row["framework"] = "Megatron-LM 25.11";
  row["ep"] = "8";
  EXPECT_TRUE(recipe_contradictions(row_of(row)).empty());
}

// What the artifact counted for its systems, whose balancing loss, where there is one, is small.
TEST(RoutedLoad, IsWhatWasCounted) {
  Changes row = mixture({{"framework", "Hetu-Galvatron (FSEP)"},
                         {"experts", "8"},
                         {"top_k", "2"},
                         {"variant", "static EP + FSDP"},
                         {"notes", "auxiliary loss 0.0; real, unbalanced routing"}});
  EXPECT_EQ(execution_of(row).routing_imbalance, 1.66);
  EXPECT_THAT(routing_remarks(row_of(row)),
              testing::ElementsAre(
                  "1.66 times the mean of tokens on the busiest rank (static EP, as counted)"));
  row["variant"] = "LAER re-layout (FSEP)";
  EXPECT_EQ(execution_of(row).routing_imbalance, 1.41);
  row["variant"] = "LAER planner without priority-queue start";
  EXPECT_EQ(execution_of(row).routing_imbalance, 1.0);
  EXPECT_THAT(routing_remarks(row_of(row)), testing::ElementsAre("unbalanced routing as balanced"));
  row["variant"] = "static EP + FSDP";
  row["notes"] = "auxiliary loss 0.0001; real, unbalanced routing";
  EXPECT_EQ(execution_of(row).routing_imbalance, 1.66);
  row["notes"] = "auxiliary loss 0.01; real, unbalanced routing";
  EXPECT_EQ(execution_of(row).routing_imbalance, 1.0);
  row["notes"] = "auxiliary loss 0.0; real, unbalanced routing";
  row["top_k"] = "4";
  EXPECT_EQ(execution_of(row).routing_imbalance, 1.0);
}

// Megatron's module is the one of layers without experts.
TEST(ExpertExchanges, ProductsOfExpertsAreNotThoseOfTheModule) {
  const plan::Plan plan = row_plan(row_of(mixture({{"recompute", "selective"},
                                                   {"recompute_detail", "mlp, moe_act"},
                                                   {"ffn_hidden", "4096"},
                                                   {"first_dense_layers", "1"}})))
                              .value();
  EXPECT_EQ(plan::recompute_text(plan.layout_of(1)), "mlp-up+mlp-activation+mlp-down");
  EXPECT_EQ(plan::recompute_text(plan.layout_of(2)), "mlp-activation");
}

}  // namespace
}  // namespace orrery::studies
