// SPDX-License-Identifier: Apache-2.0
// One reader of settings in every notation of remarks, and what rows set with it.
#include <gmock/gmock.h>

#include <array>

#include "studies/rows/framework_facts.hpp"
#include "studies/rows/row_network.hpp"
#include "studies/rows/row_plan.hpp"
#include "studies/rows/settings.hpp"
#include "studies/rows/stated_gradients.hpp"
#include "studies/rows/stated_offload.hpp"
#include "studies/rows/stated_optimizer.hpp"
#include "studies/rows/stated_window.hpp"
#include "tests/unit/studies/testing.hpp"

namespace orrery::studies {
namespace {

using testing::Changes;
using ::testing::Contains;
using testing::execution_of;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::predicted;
using testing::row_of;

constexpr auto kFactor = std::to_array<std::string_view>({"capacity factor"});
constexpr auto kGraphs = std::to_array<std::string_view>({"cuda graph"});

TEST(RemarkSettings, NotationsOfNames) {
  EXPECT_EQ(with_blanks("--No-overlap_grad-Reduce x=-1"), "no overlap grad reduce x=-1");
  EXPECT_EQ(with_blanks("20-20 ZeRO-1"), "20 20 zero 1");
  EXPECT_EQ(with_blanks(""), "");
  EXPECT_EQ(asserted_with_blanks("fused_ce=False; b"), "; b");
}

TEST(RemarkSettings, Numbers) {
  for (const char* text : {"capacity factor 2.0", "capacity_factor=2.0", "Capacity factor: 2.0",
                           "expert capacity factor of 2", "moe-expert-capacity-factor 2.0"}) {
    EXPECT_EQ(number_set(text, kFactor), 2.0) << text;
  }
  for (const char* text : {"no capacity factor 2.0 (dropless)", "capacity factor none",
                           "capacity factors 2.0", "without capacity factor 2.0", ""}) {
    EXPECT_FALSE(number_set(text, kFactor)) << text;
  }
  EXPECT_EQ(number_set("capacity_factor=-1", kFactor), -1.0);
}

TEST(RemarkSettings, Switches) {
  for (const char* text : {"CUDA graph", "cuda_graph=1", "cuda-graph: on", "full CUDA graph"}) {
    EXPECT_EQ(switch_set(text, kGraphs), true) << text;
  }
  for (const char* text : {"no CUDA graph", "cuda_graph=False", "cuda-graph (off)",
                           "CUDA graph capture disabled", "--no-cuda-graph"}) {
    EXPECT_EQ(switch_set(text, kGraphs), false) << text;
  }
  EXPECT_FALSE(switch_set("eager", kGraphs));
}

TEST(RemarkSettings, CapacityOfExperts) {
  const auto factor = [](const std::string& notes) {
    return capacity_factor(row_of({{"notes", notes}}));
  };
  EXPECT_EQ(factor("moe_expert_capacity_factor=1.25"), 1.25);
  EXPECT_EQ(factor("no capacity factor 2.0"), 0);
  EXPECT_EQ(factor("capacity_factor=-1"), 0);
}

// GPT scripts of Megatron have a dropout of 0.1.
TEST(RemarkSettings, Dropout) {
  const auto dropout = [](const std::string& notes) {
    const Measurement row = row_of({{"notes", notes}});
    const auto network = row_network(row, framework_of(row).facts).value();
    return std::pair(network.hidden_dropout, network.attention_dropout);
  };
  EXPECT_EQ(dropout(""), std::pair(0.1, 0.1));
  for (const char* notes : {"dropout 0", "no dropout", "dropout=0.0", "dropout: off",
                            "attention_dropout=0, hidden_dropout=0"}) {
    EXPECT_EQ(dropout(notes), std::pair(0.0, 0.0)) << notes;
  }
  EXPECT_EQ(dropout("attention-dropout 0.0"), std::pair(0.1, 0.0));
}

TEST(RemarkSettings, FormatsOfGradients) {
  for (const char* text :
       {"param bf16 reduce fp32", "param_dtype=bf16 reduce_dtype=fp32", "bf16 params, fp32 reduce",
        "mixed_precision_param = bfloat16, mixed_precision_reduce = float32",
        "grads in bf16 accumulated in fp32", "accumulate_allreduce_grads_in_fp32=True"}) {
    EXPECT_EQ(stated_fp32_gradients(text), true) << text;
  }
  for (const char* text : {"reduce in bf16", "reduce_dtype bf16", "mixed_precision_reduce=bfloat16",
                           "grads all-reduced in bf16", "bf16 reduce-scatter",
                           "grad_reduce_in_fp32=False", "16-bit gradients"}) {
    EXPECT_EQ(stated_fp32_gradients(text), false) << text;
  }
  for (const char* text :
       {"bf16, fp32 accumulation of products", "no bf16 gradients", "bf16 gradient checkpointing",
        "TP all-reduce in bf16", "bf16 reduced models", "gradient accumulation 4", ""}) {
    EXPECT_FALSE(stated_fp32_gradients(text)) << text;
  }
  EXPECT_TRUE(
      execution_of({{"framework", "torchtitan"}, {"notes", "param_dtype=bf16 reduce_dtype=fp32"}})
          .fp32_gradients);
}

TEST(RemarkSettings, WhatTheOptimizerKeeps) {
  const auto bytes = [](const std::string& notes) {
    return execution_of({{"framework", "PyTorch FSDP"}, {"notes", notes}}).optimizer_state_bytes;
  };
  EXPECT_EQ(bytes("8-bit (fp8) forward; AdamW states fp32"), 8);
  EXPECT_EQ(bytes("paged AdamW 8bit"), 2);
  EXPECT_EQ(bytes("AdamW, 8-bit"), 2);
  EXPECT_EQ(bytes("bf16 optimizer states"), 4);
  const plan::Execution pure =
      execution_of({{"framework", "PyTorch FSDP"}, {"notes", "pure bf16 (no fp32 master)"}});
  EXPECT_FALSE(pure.fp32_parameters || pure.master_weights || pure.fp32_gradients);
  EXPECT_TRUE(keeps_no_master(row_of({{"precision_detail", "bf16 (pure)"}})));
  EXPECT_FALSE(keeps_no_master(row_of({{"notes", "bf16 with fp32 master weights"}})));
}

TEST(RemarkSettings, SharesOfActivationsThatLeave) {
  const auto share = [](const std::string& notes) {
    return stated_offload(row_of({{"notes", notes}})).activations;
  };
  EXPECT_DOUBLE_EQ(share("activation offload ratio 0.4"), 0.4);
  EXPECT_DOUBLE_EQ(share("activation offloading, alpha=0.4"), 0.4);
  EXPECT_DOUBLE_EQ(share("activation offload (last 6 layers)"), 0.25);  // of 24
  EXPECT_DOUBLE_EQ(share("offload 4 of 10 layers activations"), 0.4);
  EXPECT_DOUBLE_EQ(share("activations offloaded"), 1);
}

TEST(RemarkSettings, LossesAndShardsThatStay) {
  for (const char* notes : {"fused cross entropy", "fused linear cross-entropy",
                            "chunked cross-entropy loss", "fused CE"}) {
    EXPECT_TRUE(execution_of({{"framework", "PyTorch FSDP"}, {"notes", notes}}).fused_cross_entropy)
        << notes;
  }
  for (const char* notes : {"no fused cross entropy", "fused_cross_entropy=False", ""}) {
    EXPECT_FALSE(
        execution_of({{"framework", "PyTorch FSDP"}, {"notes", notes}}).fused_cross_entropy)
        << notes;
  }
  const auto frees = [](const std::string& notes) {
    return execution_of({{"zero_stage", "3"}, {"notes", notes}}).reshard_after_forward;
  };
  EXPECT_FALSE(frees("reshard_after_forward=False"));
  EXPECT_FALSE(frees("no reshard after forward"));
  EXPECT_TRUE(frees("reshard_after_forward=True"));
  EXPECT_TRUE(frees(""));
}

TEST(RemarkSettings, GraphsAreReplayedWithoutExperts) {
  EXPECT_TRUE(execution_of({{"notes", "full CUDA graph enabled"}}).cuda_graphs);
  EXPECT_TRUE(execution_of({{"framework", "Megatron-LM + CUDA graphs"}}).cuda_graphs);
  EXPECT_FALSE(execution_of({{"notes", "no CUDA graphs"}}).cuda_graphs);
  EXPECT_FALSE(execution_of({}).cuda_graphs);
  const std::string line = "CUDA graphs beside experts as kernels launched one by one";
  EXPECT_THAT(predicted({{"notes", "CUDA graphs"}, {"experts", "8"}, {"top_k", "2"}}).assumed,
              Contains(line));
  EXPECT_THAT(predicted({{"notes", "CUDA graphs"}}).assumed, Not(Contains(line)));
}

// The scales of blocks stay, whichever cell names them.
TEST(RemarkSettings, Mxfp8KeepsItsScales) {
  const Changes base = {{"gpu", "B200-180GB-SXM"},
                        {"framework", "Megatron-Bridge"},
                        {"tp", "1"},
                        {"pp", "1"},
                        {"dp", "8"},
                        {"sequence_parallel", "0"}};
  const auto time = [&](const std::string& precision, const std::string& detail) {
    Changes changes = base;
    changes.insert({{"precision", precision}, {"precision_detail", detail}});
    return predicted(changes).predicted;
  };
  EXPECT_EQ(time("mxfp8", ""), time("fp8", "mxfp8"));
  EXPECT_NE(time("mxfp8", ""), time("fp8", "current scaling"));
  EXPECT_FALSE(execution_of({{"framework", "NeMo"}, {"precision", "mxfp8"}}).quantised_gather);
  EXPECT_FALSE(execution_of({{"framework", "NeMo"}, {"precision", "mxfp8"}}).fp32_gradients);
}

}  // namespace
}  // namespace orrery::studies
