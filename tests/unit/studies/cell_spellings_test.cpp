// SPDX-License-Identifier: Apache-2.0
// One fact in several spellings: signs of typesetters, names of variants and networks, blanks that
// follow from other cells.
#include <gmock/gmock.h>

#include "base/error.hpp"
#include "studies/rows/bridge_recipes.hpp"
#include "tests/unit/base/testing.hpp"
#include "tests/unit/studies/testing.hpp"

namespace orrery::studies {
namespace {

using testing::Changes;
using testing::execution_of;
using ::testing::IsEmpty;
using testing::predicted;
using testing::row_of;

TEST(CellSpellings, SignsOfTypesetters) {
  const Measurement row = row_of({{"framework", "Megatron\u2011LM"},
                                  {"gpu", "A100\u201380GB\u2013SXM"},
                                  {"schedule", "1F1B\u00A0with overlap"},
                                  {"seq_len", "2\u202F048"},
                                  {"gpus", "1\u00D78"},
                                  {"model_name",
                                   "Mixtral\u2009"
                                   "8\u00D7"
                                   "7B\u2020"},
                                  {"recompute", "\u2014"},
                                  {"notes", "the node\u2019s NVLink"}});
  EXPECT_EQ(row.framework, "Megatron-LM");
  EXPECT_EQ(row.gpu, "A100-80GB-SXM");
  EXPECT_EQ(row.schedule, "1f1b");
  EXPECT_EQ(row.seq_len, 2048);
  EXPECT_EQ(row.gpus, 8);
  EXPECT_EQ(row.model_name, "Mixtral 8x7B");
  EXPECT_EQ(row.recompute, "");
  EXPECT_EQ(row.notes, "the node's NVLink");
}

TEST(CellSpellings, MarksOfFootnotes) {
  const Measurement row = row_of({{"id", "a*"},
                                  {"tp", "2*"},
                                  {"global_batch", "16 sequences\u2021"},
                                  {"zero_stage", "1\u2020"},
                                  {"measured_value", "12.5 s*\u2020"}});
  EXPECT_EQ(row.id, "a*");  // another row may be "a"
  EXPECT_EQ(row.tp, 2);
  EXPECT_EQ(row.global_batch, 16);
  EXPECT_EQ(row.zero_stage, 1);
  EXPECT_EQ(row.value, 12.5);
}

TEST(CellSpellings, CountsBesideOthers) {
  const Measurement heads = row_of({{"heads", "32/8"}, {"kv_heads", ""}});
  EXPECT_EQ(heads.heads, 32);
  EXPECT_EQ(heads.kv_heads, 8);
  EXPECT_EQ(row_of({{"heads", "32 / 8"}, {"kv_heads", "8"}}).heads, 32);
  EXPECT_THROW(row_of({{"heads", "32/8"}, {"kv_heads", "4"}}), Error);
  EXPECT_THROW(row_of({{"heads", "32/5"}, {"kv_heads", ""}}), Error);
  const Measurement experts = row_of({{"top_k", "2 of 8"}, {"experts", ""}});
  EXPECT_EQ(experts.top_k, 2);
  EXPECT_EQ(experts.experts, 8);
  EXPECT_EQ(row_of({{"top_k", "2/8"}, {"experts", "8"}}).top_k, 2);
  EXPECT_THROW(row_of({{"top_k", "2/8"}, {"experts", "16"}}), Error);
}

// Of nodes whose GPUs are counted, of the row's GPU; a width and a batch by what they are of.
TEST(CellSpellings, CountsOfOtherThings) {
  const Measurement nodes = row_of({{"gpus", "2 nodes"}, {"gpus_per_node", "4"}});
  EXPECT_EQ(nodes.gpus, 8);
  EXPECT_THAT(nodes.remarks, ::testing::Contains("gpus 2 nodes as 8"));
  EXPECT_THAT(testing::message_of([] {
                row_of({{"gpus", "2 nodes"}, {"gpus_per_node", ""}});
              }),
              ::testing::HasSubstr("gpus: \"2 nodes\" is not a number"));
  for (const char* cell : {"8 A100", "8 A100s", "8 A100-80GB"}) {
    EXPECT_EQ(row_of({{"gpus", cell}}).gpus, 8) << cell;
  }
  EXPECT_THAT(testing::message_of([] {
                row_of({{"gpus", "8 MI250X"}, {"gpu", "MI250X"}});
              }),
              ::testing::HasSubstr("is not a number"));
  for (const char* cell : {"4h", "4 h", "4 x hidden", "4*hidden", "4 hidden_size"}) {
    EXPECT_EQ(row_of({{"ffn_hidden", cell}}).ffn_hidden, 8192) << cell;
  }
  EXPECT_EQ(row_of({{"ffn_hidden", "3.5h"}}).ffn_hidden, 7168);
  for (const char* cell : {"4M", "4M tokens", "4 million", "4.2M"}) {
    EXPECT_EQ(row_of({{"global_batch", cell}}).global_batch, 2048) << cell;
  }
}

TEST(CellSpellings, DistributedOptimizer) {
  const auto stage = [](const std::string& cell) {
    return row_of({{"zero_stage", cell}}).zero_stage;
  };
  for (const char* cell :
       {"distributed optimizer", "with distributed optimizer", "distributed optimiser",
        "distributed optimizer enabled", "distributed optimizer on"}) {
    EXPECT_EQ(stage(cell), 1) << cell;
  }
  for (const char* cell : {"without distributed optimizer", "distributed optimizer off",
                           "use_distributed_optimizer=False"}) {
    EXPECT_EQ(stage(cell), 0) << cell;
  }
}

// Products in a formula keep the sign that tells them from names.
TEST(CellSpellings, FormulasKeepTheirProducts) {
  const Changes rate = {
      {"measured_metric", "tflops_per_gpu"}, {"measured_value", "100"}, {"params_b", "1.3"}};
  const auto time = [&](const std::string& formula) {
    Changes changes = rate;
    changes["flops_convention"] = formula;
    return predicted(changes).measured;
  };
  EXPECT_GT(time("6\u00D7N\u00D7"
                 "D"),
            0);
  EXPECT_DOUBLE_EQ(time("6\u00D7N\u00D7"
                        "D"),
                   time("6ND"));
}

TEST(CellSpellings, Variants) {
  const auto time = [](const std::string& variant, const std::string& notes = "") {
    return predicted({{"variant", variant}, {"notes", notes}}).predicted;
  };
  const auto read = [](const std::string& cell) { return row_of({{"variant", cell}}).variant; };
  for (const char* cell :
       {"Vocab-1", "VOCAB-1", "vocab_1", "vocab 1", "vocab1", "vocab-1 (ours)"}) {
    EXPECT_EQ(read(cell), "vocab-1") << cell;
  }
  EXPECT_EQ(read("Interlaced"), "interlaced");
  EXPECT_EQ(read("Redis"), "redis");
  EXPECT_EQ(read("My method"), "My method");
  EXPECT_NE(time("vocab-1"), time(""));
  for (const char* scheme : {"vocab-1", "vocab-2", "interlaced", "redis"}) {
    EXPECT_GT(time(scheme), 0) << scheme;
    EXPECT_EQ(time("", fmt::format("warm; {}", scheme)), time(scheme)) << scheme;
  }
  EXPECT_THAT(row_of({{"notes", "no vocab-1"}}).variant, IsEmpty());
  EXPECT_THAT(row_of({{"notes", "vocab-1"}, {"schedule", "gpipe"}}).variant, IsEmpty());
}

TEST(CellSpellings, DetailsThatOnlyDeny) {
  for (const char* detail : {"none", "None", "no", "off", "N"}) {
    for (const char* kind : {"full", "selective"}) {
      const Measurement row = row_of({{"recompute", kind}, {"recompute_detail", detail}});
      EXPECT_EQ(row.recompute, kind) << detail;
      EXPECT_THAT(row.recompute_detail, IsEmpty()) << detail;
    }
  }
  EXPECT_EQ(row_of({{"recompute", "none"}, {"recompute_detail", "none"}}).recompute, "none");
  EXPECT_EQ(row_of({{"recompute", "Complete"}}).recompute, "full");
}

TEST(CellSpellings, NamesOfNetworks) {
  const auto gradients = [](const std::string& name) {
    return execution_of({{"framework", "NeMo"}, {"model_name", name}}).fp32_gradients;
  };
  for (const char* name : {"nemotron4-15b", "Nemotron-4 15B", "nemotron_4_15b"}) {
    EXPECT_FALSE(gradients(name)) << name;
  }
  EXPECT_TRUE(gradients("llama3-8b"));
  const auto remarks = [](const std::string& name) {
    return recipe_remarks(row_of({{"framework", "Megatron-Bridge 25.11"}, {"model_name", name}}))
        .size();
  };
  EXPECT_EQ(remarks("DeepSeek V3"), 1U);
  EXPECT_EQ(remarks("deepseek-v3"), 1U);
  const auto recomputed = [](const std::string& name) {
    return predicted({{"framework", "Megatron-Bridge 25.11"},
                      {"model_family", "llama"},
                      {"model_name", name},
                      {"gpu", "H100-80GB-SXM"},
                      {"precision", "fp8"},
                      {"recompute", ""},
                      {"ffn_hidden", "8192"},
                      {"confidence", "partial"}})
        .predicted;
  };
  EXPECT_EQ(recomputed("Llama 3 8B"), recomputed("llama3-8b"));
  EXPECT_EQ(recomputed("Llama-3-8B"), recomputed("llama3-8b"));
  EXPECT_NE(recomputed("llama3-8b"), recomputed("llama3-70b"));
}

// A first gradient is not added to anything, whether the row counts micro-batches or leaves them
// to its other counts.
TEST(CellSpellings, OneMicroBatchThatFollows) {
  const auto fused = [](const std::string& steps, const std::string& batch) {
    return execution_of({{"framework", "Megatron-LM"},
                         {"year", "2020"},
                         {"num_microbatches", steps},
                         {"global_batch", batch}})
        .fused_grad_accumulation;
  };
  EXPECT_TRUE(fused("1", "2"));
  EXPECT_TRUE(fused("", "2"));
  EXPECT_FALSE(fused("", "4"));
  EXPECT_FALSE(fused("2", "4"));
}

TEST(CellSpellings, RecipesOfBatchesThatFollow) {
  Changes counts = {{"framework", "Megatron-Bridge 25.11"},
                    {"gpus", "8"},
                    {"tp", "1"},
                    {"pp", "1"},
                    {"micro_batch", "2"},
                    {"num_microbatches", "4"},
                    {"global_batch", ""}};
  counts["dp"] = "8";
  EXPECT_EQ(recipe_asked(row_of(counts)).batch, 64);
  counts["dp"] = "";
  EXPECT_EQ(recipe_asked(row_of(counts)).batch, 64);
  counts["num_microbatches"] = "";
  EXPECT_EQ(recipe_asked(row_of(counts)).batch, 0);
}

TEST(CellSpellings, AttentionAndSchedules) {
  const auto fused = [](const std::string& cell) {
    return execution_of({{"attention_impl", cell}}).fused_attention;
  };
  for (const char* cell : {"non-fused", "Non fused", "bmm", "torch.bmm", "matmul", "plain",
                           "plain attention", "original attention"}) {
    EXPECT_FALSE(fused(cell)) << cell;
    EXPECT_THAT(predicted({{"attention_impl", cell}}).assumed, IsEmpty()) << cell;
  }
  EXPECT_TRUE(fused("flash (plain mask)"));
  for (const char* cell : {"fill-drain", "Fill-Drain", "GPipe flush"}) {
    EXPECT_EQ(row_of({{"schedule", cell}}).schedule, "gpipe") << cell;
  }
}

}  // namespace
}  // namespace orrery::studies
