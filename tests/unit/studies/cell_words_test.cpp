// SPDX-License-Identifier: Apache-2.0
// Cells of batches, formats, kernels and recomputation in the words of papers and scripts.
#include <gmock/gmock.h>

#include "studies/rows/framework_facts.hpp"
#include "studies/rows/recompute_words.hpp"
#include "studies/rows/row_plan.hpp"
#include "studies/rows/row_recompute.hpp"
#include "studies/rows/row_words.hpp"
#include "tests/unit/studies/testing.hpp"

namespace orrery::studies {
namespace {

using ::testing::ElementsAre;
using testing::execution_of;
using ::testing::HasSubstr;
using testing::row_of;

TEST(CellWords, BatchesInTokens) {  // of 2048
  const auto batch = [](const std::string& cell) {
    return row_of({{"global_batch", cell}}).global_batch;
  };
  EXPECT_EQ(batch("3.2M tokens"), 1562);  // 3.2 million, which two ranks share
  EXPECT_EQ(batch("0.5M tokens"), 256);   // 2^19
  EXPECT_EQ(batch("4M tokens/batch"), 2048);
  EXPECT_EQ(batch("524,288 tokens/step"), 256);
  EXPECT_EQ(batch("4 million tokens"), 2048);  // of 2^20, as "4M"
  EXPECT_EQ(batch("2^20 tokens"), 512);
  EXPECT_EQ(batch("~1M tokens per step"), 512);
  EXPECT_EQ(batch("128 seqs x 2048"), 128);
  EXPECT_EQ(batch("128 x 2,048 (tokens)"), 128);
  EXPECT_THAT(row_of({{"global_batch", "3.2M tokens"}}).remarks,
              ElementsAre("global_batch 3.2M tokens as 1562 sequences"));
  // Rounded tokens of the counts beside them, and of others.
  const auto of_long = [](const std::string& cell, const std::string& steps) {
    return row_of({{"seq_len", "8192"},
                   {"dp", "16"},
                   {"num_microbatches", steps},
                   {"global_batch", cell}})
        .global_batch;
  };
  EXPECT_EQ(of_long("8.4M tokens", "64"), 1024);
  EXPECT_EQ(of_long("8.4M tokens", "60"), 1024);      // 1025 are no equal parts of 16 ranks
  EXPECT_THROW(batch("128 x 4096"), std::exception);  // another length
  EXPECT_THROW(batch("4M tokens of text"), std::exception);
}

// Thousands are of 1024 where a power of two, or few of them, were; rounded counts are those that
// ranks share evenly.
TEST(CellWords, RoundedTokens) {
  const auto batch = [](const std::string& cell, const std::string& dp = "2") {
    return row_of({{"seq_len", "4096"}, {"gpus", ""}, {"dp", dp}, {"global_batch", cell}})
        .global_batch;
  };
  EXPECT_EQ(batch("524K tokens"), 128);
  EXPECT_EQ(batch("262K tokens"), 64);
  EXPECT_EQ(batch("1048K tokens"), 256);
  EXPECT_EQ(batch("512K tokens"), 128);
  EXPECT_EQ(batch("768K tokens"), 192);
  EXPECT_EQ(batch("786K tokens"), 192);
  EXPECT_EQ(batch("500K tokens"), 122);
  EXPECT_EQ(batch("2.1M tokens"), 512);
  EXPECT_EQ(batch("2.1M tokens", ""), 512);
  EXPECT_EQ(batch("2.1M tokens", "24"), 504);
  EXPECT_EQ(batch("67M tokens"), 16384);
  EXPECT_EQ(batch("1.57M tokens", "8"), 384);
  EXPECT_EQ(batch("3.1M tokens", "8"), 760);
  EXPECT_EQ(batch("524,288 tokens", "24"), 128);  // nothing is rounded
}

TEST(CellWords, HeadsOfKeysInABracket) {
  const auto heads = [](const std::string& cell, const std::string& keys = "") {
    return row_of({{"heads", cell}, {"kv_heads", keys}}).kv_heads;
  };
  EXPECT_EQ(heads("32 (8 KV)"), 8);
  EXPECT_EQ(heads("32 (GQA, 8 groups)"), 8);
  EXPECT_EQ(heads("32 (GQA 4:1)"), std::nullopt);
  EXPECT_EQ(heads("32 (MHA)"), std::nullopt);
  EXPECT_EQ(heads("32 (8 KV)", "4"), 4);
  EXPECT_THAT(row_of({{"heads", "32 (8 KV)"}}).remarks,
              ElementsAre("heads 32 (8 kv) as kv_heads 8"));
}

TEST(CellWords, DeniedFormats) {
  EXPECT_EQ(precision_name("bf16 (fp8 not used)"), "bf16");
  EXPECT_EQ(precision_name("bf16, no fp8"), "bf16");
  EXPECT_EQ(precision_name("bf16 (fp8 next)"), "bf16");
  EXPECT_EQ(precision_name("bf16 instead of fp8"), "bf16");
  EXPECT_EQ(precision_name("bf16 vs fp8"), "bf16");
  EXPECT_EQ(precision_name("fp32 (TF32 off)"), "fp32");
  EXPECT_EQ(precision_name("fp32 (no tf32)"), "fp32");
  EXPECT_EQ(precision_name("fp32 (TF32 matmul)"), "tf32");
  EXPECT_EQ(precision_name("bf16 (fp8 GEMMs)"), "fp8");
  EXPECT_EQ(precision_name("mixed (bf16)"), "bf16");
  EXPECT_EQ(precision_name("bf16 (fp32 reduce)"), "bf16");
  EXPECT_EQ(precision_name("32-bit"), "fp32");
  EXPECT_EQ(precision_name("O2"), "fp16");
}

TEST(CellWords, KernelsThatAreNotMeant) {
  const auto fused = [](const std::string& cell) {
    return execution_of({{"attention_impl", cell}}).fused_attention;
  };
  for (const char* cell : {"FA2 (not eager)", "flash vs eager 1.3x", "cuDNN (standard mask)",
                           "FlashAttention instead of naive", "flash, never materialised"}) {
    EXPECT_TRUE(fused(cell)) << cell;
  }
  for (const char* cell :
       {"eager vs flash", "naive instead of flash", "unfused (Megatron fused softmax)",
        "flash disabled", "flash (off)", "no flash", "SDPA math", "unfused, fp32 softmax"}) {
    EXPECT_FALSE(fused(cell)) << cell;
  }
}

TEST(CellWords, RecomputationInFlags) {
  const auto kind = [](const std::string& cell, const std::string& detail = "") {
    return recompute_words(cell, detail).name;
  };
  EXPECT_EQ(kind("--recompute-activations"), "selective");
  EXPECT_EQ(kind("recompute_activations=True"), "selective");
  EXPECT_EQ(kind("recompute_activations=False"), "none");
  EXPECT_EQ(kind("recompute activations"), "full");
  EXPECT_EQ(kind("full", "block, 0 layers"), "none");
  EXPECT_EQ(kind("full", "activations_checkpoint_num_layers: 0"), "none");
  EXPECT_EQ(kind("full", "disabled"), "none");
  EXPECT_EQ(kind("full", "block, 10 layers"), "full");
  EXPECT_EQ(kind("full", "disabled for last 2 layers"), "full");
}

StatedRecompute recompute_of(const std::string& cell, const std::string& detail,
                             const std::string& framework) {
  const Measurement row =
      row_of({{"recompute", cell}, {"recompute_detail", detail}, {"framework", framework}});
  EXPECT_THAT(unread_recompute(row), ::testing::IsEmpty()) << cell << detail;
  return stated_recompute(row, framework_of(row).facts).value();
}

TEST(CellWords, TitansSelectiveOption) {
  EXPECT_EQ(recompute_of("selective", "selective_ac_option=op", "torchtitan").operators,
            "products");
  EXPECT_EQ(recompute_of("op SAC", "", "torchtitan").operators, "products");
  EXPECT_EQ(recompute_of("selective (op)", "", "torchtitan").operators, "products");
  EXPECT_EQ(recompute_of("selective", "option 'op'", "torchtitan").operators, "products");
  EXPECT_EQ(recompute_of("selective_ac_option=2", "", "torchtitan").every, 2);
  EXPECT_EQ(recompute_of("selective", "2", "torchtitan").every, 2);
  EXPECT_EQ(recompute_of("selective", "", "Megatron-LM").operators, "selective");
}

TEST(CellWords, LayersOfACheckpointAreAnInterval) {
  EXPECT_EQ(recompute_of("full", "1 layer per checkpoint", "Megatron-LM").first, 0);
  EXPECT_EQ(recompute_of("full", "2 layers per segment", "Megatron-LM").first, 0);
  EXPECT_EQ(recompute_of("full", "3 layers per stage", "Megatron-LM").first, 3);
}

}  // namespace
}  // namespace orrery::studies
