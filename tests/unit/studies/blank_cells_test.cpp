// SPDX-License-Identifier: Apache-2.0
// Blank cells of rows of full confidence: what the framework's defaults or the network's name say,
// and a line in `assumed` wherever other words would have changed the figure.
#include "studies/rows/blank_cells.hpp"

#include <gmock/gmock.h>

#include <algorithm>

#include "base/error.hpp"
#include "studies/rows/row_choice.hpp"
#include "studies/rows/row_network.hpp"
#include "tests/unit/studies/testing.hpp"

namespace orrery::studies {
namespace {

using testing::Changes;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::predicted;
using testing::row_of;
using ::testing::StartsWith;

Changes llama_row(Changes changes = {}) {
  changes.insert({{"model_family", "llama"},
                  {"ffn_hidden", "5632"},
                  {"gated_mlp", "1"},
                  {"kv_heads", "4"},
                  {"head_dim", "128"},
                  {"tied_embeddings", "0"}});
  return changes;
}

plan::Plan completed_plan(const Changes& changes) {
  Measurement row = row_of(changes);
  std::vector<std::string> assumed;
  return chosen_plan(row, assumed).value();
}

TEST(BlankCells, RowsThatStateEverythingHaveNoLines) {
  EXPECT_THAT(predicted({}).assumed, IsEmpty());
  EXPECT_THAT(predicted(llama_row()).assumed, IsEmpty());
}

// Every cell whose blank changes the time or the memory of a run is told.
TEST(BlankCells, NoBlankChangesAFigureSilently) {
  const std::vector<Changes> rows = {
      llama_row({{"framework", "NeMo/Megatron-Core"}, {"model_name", "mine"}, {"year", "2025"}}),
      llama_row({{"framework", "Megatron-LM"}, {"year", "2025"}, {"overlap", "DP overlap"}}),
      llama_row({{"framework", "torchtitan"},
                 {"pp", "1"},
                 {"dp", "4"},
                 {"global_batch", "32"},
                 {"schedule", "none"},
                 {"zero_stage", "3"},
                 {"precision", "fp8"},
                 {"precision_detail", "rowwise"},
                 {"gpu", "H100-80GB-SXM"},
                 {"recompute", "selective"},
                 {"recompute_detail", "every 2nd layer"}}),
      {{"framework", "Megatron-DeepSpeed"},
       {"tied_embeddings", "0"},
       {"attention_impl", "unfused"},
       {"overlap", "no overlap"}},
      llama_row({{"experts", "8"},
                 {"top_k", "2"},
                 {"moe_ffn_hidden", "1024"},
                 {"shared_expert_ffn", "2048"},
                 {"first_dense_layers", "2"},
                 {"ep", "2"},
                 {"framework", "Megatron-Core"}})};
  // Facts of the run that no default could replace.
  const std::vector<std::string> needed = {"id", "measured_metric", "measured_value", "confidence"};
  for (const Changes& row : rows) {
    const RowResult whole = predicted(row);
    ASSERT_EQ(whole.skipped_because, "");
    Changes cells = row;
    for (const auto& [name, value] : testing::default_cells()) {
      cells.try_emplace(name, value);
    }
    for (const auto& [name, value] : cells) {
      if (value.empty() || std::ranges::find(needed, name) != needed.end()) {
        continue;
      }
      Changes blank = row;
      blank[name] = "";
      RowResult result;
      try {
        result = predicted(blank);
      } catch (const Error&) {
        continue;  // gpu
      }
      if (result.predicted != whole.predicted && result.skipped_because.empty()) {
        EXPECT_THAT(result.assumed, Not(IsEmpty())) << name << " of " << row.at("framework");
      }
    }
  }
}

TEST(BlankCells, SequenceParallelismIsThatOfTheFramework) {
  const auto sharded = [](const std::string& framework) {
    const plan::Plan plan =
        completed_plan(llama_row({{"framework", framework}, {"sequence_parallel", ""}}));
    return plan.layout_of(1).sequence_parallel;
  };
  EXPECT_TRUE(sharded("NeMo/Megatron-Core"));
  EXPECT_TRUE(sharded("Megatron-Bridge 25.09"));
  for (const char* recipe :
       {"Megatron-Core 24.07", "mcore 24.09", "Megatron-Core launcher (2024)"}) {
    EXPECT_TRUE(sharded(recipe)) << recipe;
  }
  for (const char* flags : {"Megatron-LM", "Megatron-Core", "MCore", "Megatron-Core r0.8.0",
                            "Megatron-LM core_r0.12.0", "FlagScale"}) {
    EXPECT_FALSE(sharded(flags)) << flags;
  }
  EXPECT_THAT(predicted(llama_row({{"sequence_parallel", ""}})).assumed,
              ElementsAre("sequence_parallel 0 (the default of Megatron-LM)"));
  EXPECT_THAT(
      predicted(
          llama_row({{"sequence_parallel", ""}, {"framework", "NeMo"}, {"model_name", "mine"}}))
          .assumed,
      ElementsAre("sequence parallelism"));
}

// Which Megatron refuses to train on tensor ranks otherwise; DeepSpeed's layers do not.
TEST(BlankCells, ExpertsOnTensorRanksShardSequences) {
  const auto sharded = [](const std::string& framework, Changes changes) {
    changes.insert({{"framework", framework}, {"sequence_parallel", ""}});
    return completed_plan(llama_row(changes)).layout_of(1).sequence_parallel;
  };
  const Changes experts = {{"experts", "8"}, {"top_k", "2"}};
  EXPECT_TRUE(sharded("Megatron-LM", experts));
  EXPECT_TRUE(sharded("Megatron-Core", experts));
  EXPECT_FALSE(sharded("Megatron-DeepSpeed", experts));
  EXPECT_FALSE(sharded("Megatron-LM", {{"experts", "1"}}));  // dense
  const Changes named = {{"model_name", "Mixtral-8x7B"},
                         {"hidden", ""},
                         {"heads", ""},
                         {"ffn_hidden", ""},
                         {"kv_heads", ""},
                         {"head_dim", ""},
                         {"vocab", ""},
                         {"gated_mlp", ""},
                         {"layers", "8"}};
  EXPECT_TRUE(sharded("Megatron-LM", named));
}

TEST(BlankCells, OptimizerStatesAreShardedAsTheFrameworkDoes) {
  const auto stage = [](const std::string& framework) {
    return completed_plan(llama_row({{"framework", framework}, {"zero_stage", ""}}))
        .layout_of(1)
        .zero_stage;
  };
  EXPECT_EQ(stage("NeMo/Megatron-Core 24.07"), 1);
  EXPECT_EQ(stage("NeMo/Megatron-Core launcher (2024)"), 1);
  EXPECT_EQ(stage("InternEvo"), 1);
  EXPECT_EQ(stage("Megatron-LM"), 0);
  EXPECT_THAT(predicted(llama_row({{"zero_stage", ""}})).assumed,
              ElementsAre("zero_stage 0 (the default of Megatron-LM)"));
}

// What does not fit is no run that somebody published; formats are not guessed.
TEST(BlankCells, ChoicesFitIntoMemory) {
  const Changes large = {{"hidden", "8192"},    {"heads", "64"},      {"layers", "16"},
                         {"seq_len", "6144"},   {"micro_batch", "4"}, {"recompute", ""},
                         {"global_batch", "64"}};
  EXPECT_THAT(predicted(large).assumed,
              Contains(HasSubstr("layers of a stage (the least that fits)")));
  EXPECT_THAT(predicted({{"schedule", "interleaved"}, {"vpp", ""}}).assumed,
              Contains(HasSubstr("(the fastest that fits)")));
  EXPECT_EQ(predicted({{"precision", ""}}).skipped_because, "precision is not stated");
}

TEST(BlankCells, NamesOfCutNetworksFillTheirWidths) {
  const auto kv_heads = [](const std::string& name) {
    Measurement row = row_of({{"model_family", "llama"},
                              {"model_name", name},
                              {"layers", "8"},
                              {"hidden", "16384"},
                              {"heads", "128"},
                              {"ffn_hidden", "53248"},
                              {"gated_mlp", "1"},
                              {"vocab", "128256"}});
    std::vector<std::string> assumed;
    const auto plan = chosen_plan(row, assumed);
    return plan ? plan->network.spec.kv_heads : 0;
  };
  EXPECT_EQ(kv_heads("llama3.1-405b-proxy-8L"), 8);
  EXPECT_EQ(kv_heads("llama3.1-405b-8layers"), 8);
  EXPECT_EQ(kv_heads("my-405b-8L"), 128);
  const RowResult own = predicted(llama_row({{"kv_heads", ""}, {"model_name", "my-1b"}}));
  EXPECT_THAT(own.assumed, ElementsAre("kv_heads 16, as many as heads"));
}

TEST(BlankCells, WhatIsHiddenIsNamed) {
  EXPECT_THAT(predicted(llama_row({{"overlap", ""}})).assumed,
              ElementsAre("overlap of tensor-parallel sums of the backward (the default of "
                          "Megatron-LM)"));
  EXPECT_THAT(
      predicted(llama_row({{"overlap", ""}, {"framework", "NeMo"}, {"model_name", "a"}})).assumed,
      ElementsAre("overlap of gradients, parameters, messages between stages, "
                  "tensor-parallel sums of the backward (the default of NeMo)"));
}

// Two of each of four nodes are not the four of two.
TEST(BlankCells, NodesAreTheUsualOnes) {
  EXPECT_THAT(predicted({{"gpus_per_node", ""}}).assumed,
              ElementsAre(StartsWith("gpus_per_node 8, those of ")));
  const Changes trays = {{"gpu", "GB300-288GB"},  {"gpus", "256"},
                         {"gpus_per_node", ""},   {"dp", "64"},
                         {"global_batch", "512"}, {"inter_node", "4x800Gb"}};
  EXPECT_THAT(predicted(trays).assumed,
              Contains(::testing::AllOf(StartsWith("gpus_per_node "), HasSubstr("NVLink domain"))));
}

TEST(BlankCells, FamiliesThatNobodyKnowsAreThoseOfTheName) {
  Changes row = llama_row({{"model_family", "0"}, {"model_name", "llama3-8b"}});
  for (const auto& [cell, value] : Changes{{"layers", "8"},
                                           {"hidden", "4096"},
                                           {"heads", "32"},
                                           {"kv_heads", "8"},
                                           {"ffn_hidden", "14336"},
                                           {"vocab", "128256"}}) {
    row[cell] = value;
  }
  EXPECT_THAT(predicted(row).assumed, Contains("network family 0 as that of llama3-8b"));
}

TEST(BlankCells, SelectiveRecomputationIsThatOfTheFramework) {
  const auto text = [](const std::string& framework) {
    return plan::recompute_text(completed_plan(llama_row({{"framework", framework},
                                                          {"recompute", "selective"},
                                                          {"recompute_detail", ""},
                                                          {"pp", "1"},
                                                          {"dp", "4"},
                                                          {"global_batch", "32"},
                                                          {"schedule", "none"}}))
                                    .layout_of(1));
  };
  EXPECT_EQ(text("Megatron-LM"), "selective");
  EXPECT_EQ(text("torchtitan"), "products");
  const Changes open = {{"recompute", "selective"}, {"recompute_detail", ""}};
  EXPECT_THAT(predicted(llama_row(open)).assumed, IsEmpty());
  Changes other = open;
  other.insert({{"framework", "MaxText"}, {"year", "2025"}});
  EXPECT_THAT(predicted(llama_row(other)).assumed,
              Contains("selective recomputation as Megatron-LM's, of the attention core"));
  EXPECT_THAT(predicted(llama_row({{"recompute", "-1"}})).skipped_because, HasSubstr("-1"));
}

TEST(BlankCells, KernelsAreNamed) {
  EXPECT_THAT(predicted({{"attention_impl", ""}}).assumed,
              ElementsAre("attention_impl FlashAttention-2"));
  const Changes fp8 = llama_row({{"framework", "NeMo"},
                                 {"model_name", "mine"},
                                 {"precision", "fp8"},
                                 {"gpu", "H100-80GB-SXM"}});
  EXPECT_THAT(predicted(fp8).assumed, ElementsAre("fp8 with delayed scales"));
  Changes bridge = fp8;
  bridge["framework"] = "Megatron-Bridge 26.02";
  EXPECT_THAT(predicted(bridge).assumed, Contains("fp8 with current scales"));
}

// A remark on where cells come from is no statement of what they hold.
TEST(BlankCells, SourcesOfCellsStateNothing) {
  const auto noted = [](const std::string& notes) {
    return row_of({{"recompute", ""}, {"notes", notes}}).recompute;
  };
  EXPECT_EQ(noted("recompute/SP/overlap from launcher_scripts/conf/training yaml of the model"),
            "");
  EXPECT_EQ(noted("recompute/schedule/vocab from the matching validation config"), "");
  EXPECT_EQ(noted("recompute on"), "full");
}

}  // namespace
}  // namespace orrery::studies
