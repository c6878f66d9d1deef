// SPDX-License-Identifier: Apache-2.0
// Rows as publications print them whose tables are not among those at hand.
#include <gmock/gmock.h>

#include <map>
#include <string>

#include "plan/block_rules.hpp"
#include "studies/rows/assumptions.hpp"
#include "studies/rows/bridge_recipes.hpp"
#include "studies/rows/named_network.hpp"
#include "studies/rows/row_plan.hpp"
#include "studies/rows/stated_experts.hpp"
#include "tests/unit/studies/testing.hpp"
#include "topologies/network_words.hpp"

namespace orrery::studies {
namespace {

using testing::Changes;
using ::testing::Contains;
using ::testing::IsEmpty;
using testing::mixture;
using ::testing::Not;
using testing::predicted;
using testing::row_of;

// torchtitan knows no tensor parallelism without it.
TEST(OtherPublications, TensorRanksOfTorchtitanShareSequences) {
  Changes titan = {{"framework", "torchtitan (FSDP2)"},
                   {"zero_stage", "3"},
                   {"pp", "1"},
                   {"dp", "4"},
                   {"schedule", "none"},
                   {"sequence_parallel", ""}};
  const RowResult blank = predicted(titan);
  EXPECT_THAT(blank.assumed, Contains("sequence parallelism"));
  titan["sequence_parallel"] = "1";
  EXPECT_EQ(blank.predicted, predicted(titan).predicted);
  titan["sequence_parallel"] = "0";
  EXPECT_NE(blank.predicted, predicted(titan).predicted);
  titan["framework"] = "Megatron-LM";
  titan["sequence_parallel"] = "";
  EXPECT_THAT(predicted(titan).assumed, Not(Contains("sequence parallelism")));
}

// Before 2024 NeMo was trained by its launcher's files, whose loss is not fused.
TEST(OtherPublications, NemoBeforeItsRecipes) {
  const auto facts = [](const std::string& framework, const std::string& year) {
    return framework_of(row_of({{"framework", framework}, {"year", year}})).facts;
  };
  for (const auto& [framework, year] :
       std::map<std::string, std::string>{{"NeMo 23.08", "2024"}, {"NeMo", "2023"}}) {
    EXPECT_FALSE(facts(framework, year).execution.compiled_loss) << framework;
    EXPECT_TRUE(facts(framework, year).shards_states) << framework;
    EXPECT_EQ(facts(framework, year).execution.amax_ranks, plan::Execution().amax_ranks);
  }
  EXPECT_TRUE(facts("NeMo", "2024").execution.compiled_loss);
  EXPECT_TRUE(facts("NeMo 2.3.0", "2025").execution.compiled_loss);
  EXPECT_NE(facts("NeMo 24.03", "2024").execution.amax_ranks, plan::Execution().amax_ranks);
}

TEST(OtherPublications, FrameworksByTheirRelatives) {
  for (const auto& [framework, known] :
       std::map<std::string, std::string>{{"InternLM-Train", "InternEvo"},
                                          {"AMD Primus", "Megatron-LM"},
                                          {"FairScale", "PyTorch FSDP"}}) {
    const RowFramework relative = framework_of(
        row_of({{"framework", framework}, {"tp", "1"}, {"pp", "1"}, {"year", "2024"}}));
    EXPECT_TRUE(relative.stands_in) << framework;
    EXPECT_EQ(relative.facts.name, known) << framework;
  }
}

// As many tensor-parallel ranks as hold whole experts, though data ranks alone were enough for ep.
TEST(OtherPublications, ExpertsOfMegatronBridgeAreWhole) {
  const auto expert_tp = [](const std::string& framework, const std::string& notes,
                            const std::string& network = "moe") {
    const Changes row = mixture({{"framework", framework},
                                 {"model_name", network},
                                 {"notes", notes},
                                 {"tp", "2"},
                                 {"dp", "2"},
                                 {"ep", "2"},
                                 {"global_batch", "16"}});
    return row_plan(row_of(row)).value().layout_of(1).expert_tp;
  };
  EXPECT_EQ(expert_tp("Megatron-Bridge 26.02", ""), 1);
  EXPECT_EQ(expert_tp("Megatron-Bridge 26.02", "ETP=2"), 0);
  EXPECT_EQ(expert_tp("Megatron-Core 0.12", ""), 0);
  EXPECT_EQ(expert_tp("Megatron-Bridge 25.09", "", "Llama 4 Scout"), 0);
  EXPECT_THAT(
      unread_experts(row_of(mixture(
          {{"framework", "Megatron-Bridge 26.02"}, {"tp", "2"}, {"dp", "2"}, {"ep", "2"}}))),
      Contains("expert tensor parallelism 1 (the recipes')"));
}

// Fewer expert-parallel ranks than tensor and context ones leave copies in a replica.
TEST(OtherPublications, WholeExpertsHaveCopiesInAReplica) {
  const Changes row = mixture({{"framework", "Megatron-Bridge 26.02"},
                               {"tp", "2"},
                               {"cp", "2"},
                               {"dp", "1"},
                               {"ep", "2"},
                               {"global_batch", "16"}});
  const auto plan = row_plan(row_of(row));
  ASSERT_TRUE(plan) << plan.error();
  EXPECT_EQ(plan->layout_of(1).expert_tp, 1);
  EXPECT_EQ(plan->layout_of(1).expert_cp, 1);
  EXPECT_EQ(plan::copies_inside(plan->layout_of(1)), 2);
}

// Of a release that is not listed the last one before it.
TEST(OtherPublications, ReleasesOfMegatronBridge) {
  const auto asked = [](const std::string& framework) {
    return recipe_asked(row_of({{"framework", framework}})).release;
  };
  EXPECT_EQ(asked("Megatron-Bridge 26.06"), 5);
  EXPECT_EQ(asked("Megatron-Bridge 26.08"), 5);
  EXPECT_EQ(asked("Megatron-Bridge v0.6.0"), 5);
  EXPECT_EQ(asked("Megatron-Bridge 0.10.0"), 5);
  EXPECT_EQ(asked("Megatron-Bridge 26.03"), 3);
  EXPECT_EQ(asked("Megatron-Bridge on 64 GPUs"), 0);
  EXPECT_EQ(asked("Megatron-Bridge 25.07"), 0);
  EXPECT_EQ(asked("Megatron-Bridge"), 0);
  const auto remarks = [](const std::string& framework) {
    return recipe_remarks(row_of(mixture({{"framework", framework}})));
  };
  EXPECT_THAT(remarks("Megatron-Bridge 26.08"),
              Contains("Megatron-Bridge 26.08: recipes of 26.06"));
  EXPECT_THAT(
      remarks("Megatron-Bridge"),
      Contains("Megatron-Bridge: no recipe, as no release of one is known (25.09 to 26.06)"));
  EXPECT_THAT(remarks("Megatron-Bridge 26.02"), IsEmpty());
  EXPECT_THAT(recipe_remarks(row_of({{"framework", "Megatron-Bridge"}})), IsEmpty());
}

TEST(OtherPublications, NetworksByOtherNames) {
  for (const auto& [name, known] :
       std::map<std::string, std::string>{{"ERNIE-4.5 21B-A3B", "ernie4.5-21b"},
                                          {"DeepSeek-V2-236B-A21B", "deepseek-v2"},
                                          {"Qwen3-30B", "qwen3-30b-a3b"},
                                          {"Qwen1.5-72B", "qwen-72b"},
                                          {"StarCoder 15.5B", "starcoder-15b"},
                                          {"bigcode/StarCoderBase-15.5B", "starcoder-15b"},
                                          {"DeepSeek-V2-Lite 16B", "deepseek-v2-lite"},
                                          {"GPT-2 XL 1.5B", "gpt2-xl"},
                                          {"MT-NLG 530B", "megatron-turing-530b"},
                                          {"Megatron-Turing NLG", "megatron-turing-530b"},
                                          {"ViT-G/14", "vit-bigg-14"},
                                          {"T5-220M", "t5-base"},
                                          {"Yi-1.5-34B", "yi-34b"}}) {
    const auto spec = named_network(row_of({{"model_family", ""},
                                            {"model_name", name},
                                            {"layers", ""},
                                            {"hidden", ""},
                                            {"heads", ""}}));
    EXPECT_EQ(spec ? spec->name : "", known) << name;
  }
}

TEST(OtherPublications, TheNearestNetworkHasTheStatedSize) {
  EXPECT_EQ(nearest_network_hint("GPT-3 39B"), " (did you mean \"gpt-39.1b\"?)");
}

// The modes of InternEvo's tensor parallelism (docs of its configuration, parallel.tensor.mode).
TEST(OtherPublications, SequencesByTheModeOfTensors) {
  EXPECT_EQ(row_of({{"sequence_parallel", "msp"}}).sequence_parallel, true);
  EXPECT_EQ(row_of({{"sequence_parallel", "fsp"}}).sequence_parallel, true);
  EXPECT_EQ(row_of({{"sequence_parallel", "mtp"}}).sequence_parallel, false);
}

TEST(OtherPublications, RatesAndFiguresInOtherSpellings) {
  for (const std::string words : {"4x100Gb Omni Path per node", "4x100-Gb Omni-Path per node"}) {
    const auto network = topologies::parse_network(words);
    ASSERT_TRUE(network.has_value()) << words;
    EXPECT_EQ(network->link, "omni-path") << words;
    EXPECT_EQ(network->nics, 4) << words;
    EXPECT_EQ(network->gigabits, 100) << words;
  }
  EXPECT_EQ(topologies::parse_network("400-Gb/s InfiniBand")->gigabits, 400);
  EXPECT_EQ(topologies::parse_network("400 GBIT/S INFINIBAND")->gigabits, 400);
  EXPECT_FALSE(topologies::parse_network("400 GB/S").has_value()) << "bits or bytes";
  for (const std::string metric : {"tokens/s/NPU", "tokens/p/s", "tokens/s/GPU (measured)"}) {
    EXPECT_EQ(row_of({{"measured_metric", metric}}).metric, "tokens_per_s_per_gpu") << metric;
  }
}

// However many blanks typesetting leaves between words.
TEST(OtherPublications, RunsOfBlanksAreOne) {
  const auto row = row_of({{"attention_impl", "XLA  /  TE   fused"}, {"notes", "full   batch"}});
  EXPECT_EQ(row.attention_impl, "XLA / TE fused");
  EXPECT_EQ(row.notes, "full batch");
}

}  // namespace
}  // namespace orrery::studies
