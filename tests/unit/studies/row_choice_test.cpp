// SPDX-License-Identifier: Apache-2.0
// What rows of partial confidence leave open: the fastest that fits, the least recomputation.
#include "studies/rows/row_choice.hpp"

#include <gmock/gmock.h>

#include "plan/simulation/simulate.hpp"
#include "studies/rows/row_plan.hpp"
#include "studies/rows/row_recompute.hpp"
#include "tests/unit/studies/testing.hpp"

namespace orrery::studies {
namespace {

using testing::Changes;
using ::testing::Contains;
using ::testing::HasSubstr;
using testing::row_of;
using ::testing::StartsWith;

struct Chosen {
  plan::Plan plan;
  std::vector<std::string> assumed;
};

Chosen chosen(Changes changes) {
  changes.try_emplace("confidence", "partial");
  Measurement row = row_of(changes);
  Chosen result;
  result.plan = chosen_plan(row, result.assumed).value();
  return result;
}

double seconds(const plan::Plan& plan) {
  return plan::simulate(plan, {.record_spans = false}).iteration_time.value();
}

TEST(RowChoiceTest, RowsOfFullConfidenceStayAsTheyAre) {
  Measurement row = row_of({});
  std::vector<std::string> assumed;
  EXPECT_EQ(chosen_plan(row, assumed).value().micro_batch, 1);
  EXPECT_TRUE(assumed.empty());
}

TEST(RowChoiceTest, TheFastestMicroBatchOfAllThatFit) {
  const Changes open = {{"micro_batch", ""}, {"num_microbatches", ""}, {"global_batch", "64"}};
  const Chosen result = chosen(open);
  EXPECT_THAT(result.assumed, Contains(StartsWith("micro_batch ")));
  const double time = seconds(result.plan);
  int fitting = 0;
  for (const int size : {1, 2, 4, 8, 16, 32}) {
    Changes stated = open;
    stated["micro_batch"] = std::to_string(size);
    const plan::Plan plan = row_plan(row_of(stated)).value();
    if (plan::Simulator(plan).fits(plan).fits) {
      ++fitting;
      EXPECT_LE(time, seconds(plan)) << size;
    }
  }
  EXPECT_GT(fitting, 1);
}

TEST(RowChoiceTest, AStatedNumberOfMicroBatchesIsNotSearched) {
  const Chosen result = chosen({{"micro_batch", ""}, {"global_batch", "64"}});
  EXPECT_EQ(result.plan.micro_batch, 4);  // 64 samples, 2 ranks, 8 micro-batches
}

TEST(RowChoiceTest, TorchtitanMakesAsManyMicroBatchesAsStages) {
  const Chosen result = chosen({{"framework", "torchtitan (FSDP2)"},
                                {"micro_batch", ""},
                                {"num_microbatches", ""},
                                {"global_batch", "64"}});
  EXPECT_EQ(result.plan.micro_batch, 16);  // 64 samples, 2 ranks, 2 stages
}

TEST(RowChoiceTest, ChunksAreChosenToo) {
  const Chosen result = chosen({{"schedule", "interleaved"}, {"vpp", ""}});
  EXPECT_THAT(result.assumed, Contains(StartsWith("vpp ")));
  for (const int chunks : {1, 2, 3, 6}) {
    const Changes stated = {{"schedule", "interleaved"}, {"vpp", std::to_string(chunks)}};
    EXPECT_LE(seconds(result.plan), seconds(row_plan(row_of(stated)).value())) << chunks;
  }
}

TEST(RowChoiceTest, AsFewLayersAreRecomputedAsMemoryAllows) {
  const Changes large = {{"hidden", "8192"},    {"heads", "64"},      {"layers", "16"},
                         {"seq_len", "6144"},   {"micro_batch", "4"}, {"recompute", ""},
                         {"global_batch", "64"}};
  const Chosen result = chosen(large);
  EXPECT_THAT(result.assumed, Contains(HasSubstr("layers of a stage (the least that fits)")));
  EXPECT_TRUE(plan::Simulator(result.plan).fits(result.plan).fits);
  int recomputed = 0;  // of the first stage
  for (int position = 0; position < result.plan.stage_blocks.front(); ++position) {
    recomputed += result.plan.layout_of(position).recompute == plan::Recompute::Full ? 1 : 0;
  }
  ASSERT_GT(recomputed, 0);
  plan::Plan fewer = result.plan;
  fewer.blocks = {{static_cast<int>(fewer.network.chain.size()), fewer.layout_of(0)}};
  recompute_first_layers(fewer, recomputed - 1);
  EXPECT_FALSE(plan::Simulator(fewer).fits(fewer).fits);
}

// Megatron-Bridge's recipes say which whole layers they recompute, whatever memory they need here.
TEST(RowChoiceTest, RecipesDecideWhatIsRecomputed) {
  const auto recomputed = [](const plan::Plan& plan) {
    int layers = 0;
    for (const plan::BlockRun& run : plan.blocks) {
      layers += run.layout.recompute == plan::Recompute::Full ? run.count : 0;
    }
    return layers;
  };
  Changes large = {{"recompute", ""}, {"layers", "96"},         {"hidden", "12288"},
                   {"heads", "96"},   {"gpu", "H100-80GB-SXM"}, {"gpus_per_node", "8"}};
  EXPECT_GT(recomputed(chosen(large).plan), 0);  // does not fit without
  large["framework"] = "Megatron-Bridge 26.02";
  EXPECT_EQ(recomputed(chosen(large).plan), 0);
  Changes small = {{"recompute", ""},
                   {"framework", "Megatron-Bridge 25.11"},
                   {"model_name", "llama3-8b"},
                   {"gpu", "H100-80GB-SXM"},
                   {"precision", "fp8"}};
  EXPECT_EQ(recomputed(chosen(small).plan), 10);  // 5 layers of each stage
  small["precision"] = "bf16";
  EXPECT_EQ(recomputed(chosen(small).plan), 0);
}

TEST(RowChoiceTest, NothingIsRecomputedWherePlansFit) {
  const Chosen result = chosen({{"recompute", ""}});
  EXPECT_THAT(result.assumed, Contains("recompute none"));
  EXPECT_EQ(result.plan.blocks.size(), 1u);
}

// Paxml's configurations of JAX-Toolbox, by network.
TEST(RowChoiceTest, WhatPaxmlsConfigurationsRecompute) {
  const auto paxml = [](const std::string& network, const std::string& confidence = "partial") {
    return chosen({{"framework", "Paxml (JAX/XLA)"},
                   {"attention_impl", "XLA / TE fused"},
                   {"model_name", network},
                   {"recompute", ""},
                   {"confidence", confidence}});
  };
  const auto layout = [&](const std::string& network) {
    return plan::recompute_text(paxml(network).plan.layout_of(1));
  };
  EXPECT_EQ(layout("gpt-126m"), "none");
  EXPECT_EQ(layout("gpt-5b"), "norms+rotary+attention+mlp-activation+residuals");
  EXPECT_EQ(layout("gpt3-175b"), "full");
  EXPECT_THAT(paxml("gpt-5b").assumed, Contains(HasSubstr("the configuration's")));
  EXPECT_FALSE(paxml("gpt-126m").plan.execution.fused_attention);
  EXPECT_TRUE(paxml("gpt-126m").plan.execution.lookup_products);
  EXPECT_TRUE(paxml("gpt-5b").plan.execution.fused_attention);
  EXPECT_FALSE(paxml("llama2-7b").plan.execution.lookup_products);
}

}  // namespace
}  // namespace orrery::studies
