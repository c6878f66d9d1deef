// SPDX-License-Identifier: Apache-2.0
// Rows of runs that train low-rank adapters.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "studies/rows/row_network.hpp"
#include "studies/rows/row_plan.hpp"
#include "studies/rows/stated_adapters.hpp"
#include "studies/validation/predictions.hpp"
#include "tests/unit/studies/testing.hpp"

namespace orrery::studies {
namespace {

using testing::Changes;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::predicted;
using testing::row_of;

models::AdapterSpec adapters(const Changes& changes) {
  const Measurement row = row_of(changes);
  return row_network(row, framework_of(row).facts).value().adapters;
}

std::string skipped(const Changes& changes) {
  return predict_training_row(row_of(changes), 0).skipped_because;
}

TEST(AdapterRows, HaveTheFrameworksDefaults) {
  EXPECT_EQ(adapters({}).rank, 0);
  EXPECT_EQ(adapters({{"framework", "NeMo"}, {"variant", "LoRA"}}),
            (models::AdapterSpec{.rank = 32}));
  EXPECT_EQ(adapters({{"framework", "Megatron-Bridge"}, {"notes", "LoRA fine-tuning"}}),
            (models::AdapterSpec{.rank = 32}));
  EXPECT_EQ(adapters({{"framework", "NeMo"}, {"model_name", "GPT 1.3B (LoRA)"}}).rank, 32);
  EXPECT_EQ(adapters({{"framework", "NeMo"}, {"notes", "full fine-tuning, no LoRA"}}).rank, 0);
}

TEST(AdapterRows, SayTheirRankAndProducts) {
  for (const char* notes :
       {"LoRA rank 8", "LoRA (r=8)", "lora_rank=8", "LoRA with dim: 8; 4 ranks of data"}) {
    EXPECT_EQ(adapters({{"framework", "NeMo"}, {"notes", notes}}).rank, 8) << notes;
  }
  for (const char* notes : {"LoRA, head_dim 128", "LoRA, hidden_dim 4096"}) {  // not of adapters
    EXPECT_EQ(adapters({{"framework", "NeMo"}, {"notes", notes}}).rank, 32) << notes;
  }
  EXPECT_EQ(adapters({{"notes", "LoRA rank 16 on linear_qkv and linear_proj"}}),
            (models::AdapterSpec{.rank = 16, .up = false, .down = false}));
  EXPECT_EQ(
      adapters({{"notes", "LoRA r 16: q_proj k_proj v_proj o_proj gate_proj up_proj down_proj"}}),
      (models::AdapterSpec{.rank = 16}));
  EXPECT_EQ(adapters({{"notes", "LoRA of all linear layers, rank 4"}}),
            (models::AdapterSpec{.rank = 4}));
}

// What one remark leaves out another may say.
TEST(AdapterRows, AreReadFromAllRemarks) {
  const models::AdapterSpec all = {.rank = 16};
  EXPECT_EQ(adapters({{"variant", "LoRA"}, {"notes", "rank 16, all linear layers"}}), all);
  EXPECT_EQ(adapters({{"notes", "rank-16 LoRA of all linear layers"}}), all);
  EXPECT_EQ(adapters({{"model_name", "GPT (LoRA)"}, {"notes", "all-linear, r=16"}}), all);
  EXPECT_EQ(adapters({{"notes", "rank 16, all linear layers"}}).rank, 0);  // of what?
}

TEST(AdapterRows, ArePredictedFasterThanFullTraining) {
  const Changes nemo = {{"framework", "NeMo"}};
  const Changes lora = {{"framework", "NeMo"}, {"variant", "LoRA"}};
  const RowResult full = predict_training_row(row_of(nemo), 0);
  const RowResult adapted = predict_training_row(row_of(lora), 0);
  ASSERT_THAT(full.skipped_because, IsEmpty());
  ASSERT_THAT(adapted.skipped_because, IsEmpty());
  EXPECT_LT(adapted.predicted, full.predicted);
}

// As NeMo does by default; other frameworks are not known to.
TEST(AdapterRows, KeepTheGatheredInputsOfNemosAdapters) {
  const auto keeps = [](const Changes& changes) {
    return row_plan(row_of(changes)).value().blocks.front().layout.keep_gathered;
  };
  EXPECT_TRUE(keeps({{"framework", "NeMo"}, {"variant", "LoRA"}}));
  EXPECT_FALSE(keeps({{"framework", "NeMo"}}));
  EXPECT_FALSE(keeps({{"notes", "LoRA of all linear layers, rank 4"}}));
}

TEST(AdapterRows, ListsOfLetters) {
  EXPECT_EQ(adapters({{"notes", "LoRA r=16 on q,k,v,o,gate,up,down"}}),
            (models::AdapterSpec{.rank = 16}));
  EXPECT_EQ(adapters({{"notes", "LoRA r=16 (q, k, v and o)"}}),
            (models::AdapterSpec{.rank = 16, .up = false, .down = false}));
  EXPECT_EQ(adapters({{"notes", "LoRA r=16, lora_target_linear: true"}}),
            (models::AdapterSpec{.rank = 16}));
  EXPECT_THAT(skipped({{"notes", "LoRA r=16, up and down the scale"}}), HasSubstr("products"));
}

// LoraConfig of PEFT, for rows that need not state everything.
TEST(AdapterRows, HavePeftsDefaultsInPart) {
  const auto partial = [](const std::string& notes) {
    return adapters({{"notes", notes}, {"confidence", "partial"}});
  };
  const models::AdapterSpec queries = {.rank = 8, .o = false, .up = false, .down = false};
  EXPECT_EQ(partial("LoRA"), queries);
  EXPECT_EQ(partial("LoRA rank 8 on q_proj and v_proj"), queries);
  EXPECT_EQ(partial("LoRA, all linear layers"), (models::AdapterSpec{.rank = 8}));
  EXPECT_EQ(partial("full fine-tuning").rank, 0);
  EXPECT_THAT(predicted({{"notes", "LoRA"}, {"confidence", "partial"}}).assumed,
              ::testing::IsSupersetOf({"adapters (LoRA) of rank 8, PEFT's default",
                                       "adapters (LoRA) of queries and values, PEFT's default"}));
}

TEST(AdapterRows, SayWhyTheyAreSkipped) {
  EXPECT_THAT(skipped({{"variant", "LoRA"}}), HasSubstr("rank of its adapters"));
  EXPECT_THAT(skipped({{"notes", "LoRA rank 16"}}), HasSubstr("products that have adapters"));
  EXPECT_THAT(skipped({{"notes", "QLoRA rank 8"}}), HasSubstr("other than LoRA"));
}

TEST(AdapterRows, OfSomeOfTheQueriesAreOfAll) {
  const Changes some = {{"notes", "LoRA rank 8 on q_proj, v_proj and output_proj"}};
  EXPECT_EQ(adapters(some), (models::AdapterSpec{.rank = 8, .up = false, .down = false}));
  EXPECT_THAT(predicted(some).assumed,
              Contains("adapters (LoRA) of some of queries, keys and values as of all"));
  for (const char* notes : {"LoRA rank 8; target: attention (qkv, proj)",
                            "LoRA rank 8, target_modules qkv_proj,o_proj"}) {
    EXPECT_EQ(adapters({{"notes", notes}}), adapters(some)) << notes;
    EXPECT_THAT(predicted({{"notes", notes}}).assumed, IsEmpty()) << notes;
  }
}

}  // namespace
}  // namespace orrery::studies
