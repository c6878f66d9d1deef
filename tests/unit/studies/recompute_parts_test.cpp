// SPDX-License-Identifier: Apache-2.0
// Recomputation of parts of layers, of shares of layers and of stages, in cells and remarks.
#include <gmock/gmock.h>

#include "studies/rows/recompute_operators.hpp"
#include "studies/rows/row_plan.hpp"
#include "studies/rows/row_recompute.hpp"
#include "tests/unit/studies/testing.hpp"

namespace orrery::studies {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

StatedRecompute read_parts(const std::string& cell, const std::string& detail,
                           const std::string& notes = "") {
  const Measurement row = testing::row_of(
      {{"recompute", cell}, {"recompute_detail", detail}, {"notes", notes}, {"layers", "32"}});
  return stated_recompute(row, framework_of(row).facts).value();
}

TEST(RecomputeParts, Operators) {
  EXPECT_EQ(recomputed_operators("layernorm"), "norms");
  EXPECT_EQ(recomputed_operators("no layernorm"), "");
  EXPECT_EQ(recomputed_operators("normal, flash attention"), "");
  EXPECT_EQ(recomputed_operators("with_no_batch_dims"),
            "norms+rotary+attention+mlp-activation+residuals");
}

TEST(RecomputeParts, CellsThatNameParts) {
  EXPECT_EQ(read_parts("attention recompute", "").operators, "selective");
  EXPECT_EQ(read_parts("recompute of layernorm only", "").operators, "norms");
  EXPECT_EQ(read_parts("FlashAttention only", "").operators, "selective");
  EXPECT_EQ(read_parts("full", "attention only").operators, "selective");
  EXPECT_EQ(read_parts("full", "MLP only").operators, "mlp-up+mlp-activation+mlp-down");
  EXPECT_EQ(read_parts("selective", "no layernorm").operators, "selective");
  EXPECT_EQ(read_parts("selective + layernorm", "").operators, "norms+attention-core");
  EXPECT_EQ(read_parts("selective", "Megatron selective + FFN activation").operators,
            "mlp-activation+attention-core");
  EXPECT_EQ(read_parts("activation checkpointing", "flash attention").operators, "full");
}

TEST(RecomputeParts, AllButWhatIsKept) {
  const std::string others =
      "norms+qkv+rotary+attention-output+mlp-up+mlp-activation+mlp-down+routing+residuals";
  EXPECT_EQ(read_parts("full", "except attention").operators, others);
  EXPECT_EQ(read_parts("selective", "checkpoint++ (attention outputs kept)").operators, others);
  EXPECT_EQ(read_parts("full (all but core attention)", "").operators, others);
  EXPECT_EQ(read_parts("full", "except last 2 layers").operators, "full");
  EXPECT_EQ(read_parts("full", "saved 10 GB beside attention").operators, "full");
  const StatedRecompute half = read_parts("full", "attention kept, 50% of layers");
  EXPECT_EQ(half.operators, others);
  EXPECT_EQ(half.every, 2);
  const plan::Plan block =
      row_plan(testing::row_of(
                   {{"recompute", "full"}, {"recompute_detail", "block 6 layers, attention kept"}}))
          .value();
  EXPECT_EQ(plan::recompute_text(block.layout_of(1)), others);
  EXPECT_THAT(
      testing::predicted({{"recompute", "full"}, {"recompute_detail", "except attention"}}).assumed,
      ::testing::Not(Contains(HasSubstr("alone"))));
  EXPECT_EQ(read_parts("selective", "feed-forward only").operators,
            "mlp-up+mlp-activation+mlp-down");
}

TEST(RecomputeParts, SharesOfLayers) {
  const StatedRecompute part = read_parts("selective", "mlp (50% of layers)");
  EXPECT_EQ(part.operators, "mlp-up+mlp-activation+mlp-down");
  EXPECT_EQ(part.every, 2);
  EXPECT_EQ(read_parts("full", "0.5").every, 2);
  const StatedRecompute stage = read_parts("full", "10 of 20 layers per stage");
  EXPECT_EQ(stage.every, 2);
  EXPECT_EQ(stage.first, 0);
  EXPECT_EQ(read_parts("full", "2 layers/stage").first, 2);
  EXPECT_EQ(read_parts("custom", "half the layers").every, 2);
  EXPECT_EQ(read_parts("custom", "remat_policy: full").operators, "full");
}

TEST(RecomputeParts, SomeStagesAreRefused) {
  for (const std::string cell : {"full recompute except last stage", "full for first stage only",
                                 "full (only 2 stages)", "full on stage 0, none elsewhere"}) {
    const Measurement row = testing::row_of({{"recompute", cell}});
    EXPECT_FALSE(stated_recompute(row, framework_of(row).facts)) << cell;
  }
  EXPECT_EQ(read_parts("full", "4 layers per stage, first ones").first, 4);
}

TEST(RecomputeParts, RemarksFillABlank) {
  EXPECT_EQ(read_parts("", "", "every second layer checkpointed").every, 2);
  EXPECT_EQ(read_parts("", "", "activations recomputed in half of the layers").every, 2);
  EXPECT_EQ(read_parts("", "", "fully recomputed activations").operators, "full");
  EXPECT_EQ(read_parts("", "", "recompute attention").operators, "selective");
  EXPECT_THAT(read_parts("", "", "remat_policy=minimal").operators, HasSubstr("mlp-activation"));
  EXPECT_EQ(read_parts("", "",
                       "recompute-granularity full; recompute-method block; "
                       "recompute-num-layers 2")
                .first,
            2);
}

TEST(RecomputeParts, OtherRemarksSayNothing) {
  for (const std::string notes : {"throughput recomputed from the log",
                                  "checkpointed every 500 steps", "FLOPs of recompute attention"}) {
    EXPECT_EQ(testing::row_of({{"recompute", ""}, {"notes", notes}}).recompute, "") << notes;
  }
}

TEST(RecomputeParts, FullBesideAPartIsNamed) {
  EXPECT_THAT(
      testing::predicted({{"recompute", "full"}, {"recompute_detail", "attention"}}).assumed,
      Contains("recompute full, not \"attention\" alone"));
}

StatedRecompute selected_by(const std::string& framework, const std::string& counts,
                            const std::string& detail = "") {
  const Measurement row = testing::row_of({{"framework", framework},
                                           {"recompute", "selective"},
                                           {"recompute_detail", detail},
                                           {"aux_metrics", counts}});
  return stated_recompute(row, framework_of(row).facts).value();
}

// fms-fsdp recomputes a share of the blocks, which FLOPs counted with it and without tell.
TEST(RecomputeParts, SelectedLayersFromTwoWaysToCount) {
  const StatedRecompute part = selected_by("fms-fsdp", "mfu=0.5;hfu=0.55");
  EXPECT_EQ(part.share, 3);
  EXPECT_EQ(part.every, 10);
  EXPECT_THAT(part.operators, HasSubstr("mlp-up"));
  EXPECT_EQ(selected_by("fms-fsdp", "mfu=0.3;hfu=0.4").every, 1);
  EXPECT_EQ(selected_by("fms-fsdp", "mfu=0.3;hfu=0.45").every, 1);
  EXPECT_EQ(selected_by("fms-fsdp", "mfu=0.5;hfu=0.5").operators, "none");
  EXPECT_EQ(selected_by("fms-fsdp", "mfu=0.5").every, 1);
  EXPECT_EQ(selected_by("fms-fsdp", "mfu=0.5;hfu=0.55", "50% of layers").every, 2);
  EXPECT_EQ(selected_by("Megatron-LM", "mfu=0.5;hfu=0.55").operators, "selective");
}

TEST(RecomputeParts, SelectedLayersThatARowDoesNotState) {
  const auto lines = [](const std::string& counts, const std::string& detail) {
    return unread_recompute(testing::row_of({{"framework", "fms-fsdp"},
                                             {"recompute", "selective"},
                                             {"recompute_detail", detail},
                                             {"aux_metrics", counts}}));
  };
  EXPECT_THAT(lines("", ""), Contains(HasSubstr("all layers")));
  EXPECT_THAT(lines("mfu=0.5;hfu=0.55", ""), Contains(HasSubstr("30 % of the layers")));
  EXPECT_THAT(lines("", "50% of layers"), ::testing::IsEmpty());
}

}  // namespace
}  // namespace orrery::studies
