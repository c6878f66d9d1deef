// SPDX-License-Identifier: Apache-2.0
// What remarks state of blank cells, of other training than plain one and of what no plan has.
#include <gmock/gmock.h>

#include "studies/rows/other_training.hpp"
#include "studies/rows/row_network.hpp"
#include "studies/rows/row_plan.hpp"
#include "tests/unit/studies/testing.hpp"

namespace orrery::studies {
namespace {

using testing::Changes;
using ::testing::Contains;
using ::testing::ElementsAre;
using testing::execution_of;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::predicted;
using testing::row_of;

TEST(RemarkCells, Recomputation) {
  const auto kind = [](const std::string& notes) {
    return row_of({{"recompute", ""}, {"notes", notes}}).recompute;
  };
  for (const char* notes : {"full activation recompute", "gradient_checkpointing=True",
                            "recompute_granularity: full", "with activation checkpointing"}) {
    EXPECT_EQ(kind(notes), "full") << notes;
  }
  for (const char* notes :
       {"selective recompute; GAS 4", "--recompute-activations", "recompute_modules=core_attn"}) {
    EXPECT_EQ(kind(notes), "selective") << notes;
  }
  for (const char* notes :
       {"no activation recompute", "gradient checkpointing: off", "recompute=None"}) {
    EXPECT_EQ(kind(notes), "none") << notes;
  }
  for (const char* notes :
       {"recompute not stated", "TFLOPs count recomputation", "an earlier run with full recompute",
        "async checkpointing", "checkpoint every 500 steps", "recompute may be on",
        "recomputation overhead 20%", "FlashAttention avoids recomputation"}) {
    EXPECT_EQ(kind(notes), "") << notes;
  }
  EXPECT_EQ(row_of({{"notes", "full recompute"}}).recompute, "none");  // as its cell says
}

TEST(RemarkCells, AttentionKernels) {
  const auto kernel = [](const std::string& notes) {
    return row_of({{"attention_impl", ""}, {"notes", notes}}).attention_impl;
  };
  EXPECT_EQ(kernel("AdamW, FA3"), "fa3");
  EXPECT_EQ(kernel("attn_implementation=eager"), "attn implementation=eager");
  EXPECT_EQ(kernel("FlashAttention not stated"), "");
  EXPECT_EQ(kernel("an earlier run with FlashAttention"), "");
  for (const char* notes : {"no FA3", "cuDNN attention disabled", "no eager attention"}) {
    EXPECT_EQ(kernel(notes), "") << notes;
  }
  const auto fused = [](const std::string& notes) {
    return execution_of({{"attention_impl", ""}, {"notes", notes}}).fused_attention;
  };
  EXPECT_TRUE(fused("FlashAttention-2"));
  EXPECT_FALSE(fused("attn_implementation=eager"));
  EXPECT_FALSE(fused("no FlashAttention"));
}

TEST(RemarkCells, StagesOfZero) {
  const auto stage = [](const std::string& notes) {
    return row_of({{"zero_stage", ""}, {"notes", notes}}).zero_stage;
  };
  EXPECT_EQ(stage("ZeRO-2"), 2);
  EXPECT_EQ(stage("DeepSpeed, zero stage 1"), 1);
  EXPECT_EQ(stage("zero_stage=3; bf16"), 3);
  EXPECT_EQ(stage("FSDP full shard"), 3);
  EXPECT_EQ(stage("FSDP (ZeRO-2)"), 2);
  EXPECT_EQ(stage("use_distributed_optimizer=True"), 1);
  EXPECT_EQ(stage("no distributed optimizer"), 0);
  for (const char* notes : {"ZeRO-2 in an earlier run", "zero bubble", "no FSDP", "zero 12"}) {
    EXPECT_EQ(stage(notes), std::nullopt) << notes;
  }
}

TEST(RemarkCells, OtherObjectivesAreSkipped) {
  for (const auto& [column, text] :
       {std::pair("notes", "DPO"), std::pair("notes", "GRPO, 8 rollouts"),
        std::pair("notes", "reward model training"), std::pair("framework", "TRL DPO"),
        std::pair("notes", "knowledge distillation from 70B"),
        std::pair("notes", "first 16 layers frozen"), std::pair("notes", "frozen layers: 16"),
        std::pair("notes", "only head trained"), std::pair("notes", "head only training")}) {
    EXPECT_THAT(predicted({{column, text}}).skipped_because, HasSubstr("only training of all"))
        << text;
  }
  for (const char* notes :
       {"no distillation", "no frozen layers", "DPO in an earlier run",
        "LoRA rank 4, all linear, base weights frozen", "frozen_layers=0", "frozen layers: 0",
        "nothing frozen", "software frozen at v2.1", "fp32 for the LM head only",
        "loss on only the head stage", "SFT before DPO", "SFT stage of RLHF",
        "as in the InstructGPT PPO paper"}) {
    EXPECT_THAT(predicted({{"notes", notes}}).skipped_because, IsEmpty()) << notes;
  }
}

TEST(RemarkCells, WhatIsNotModelledIsNamed) {
  const auto lines = [](const std::string& notes) {
    return unmodelled_remarks(row_of({{"notes", notes}}));
  };
  for (const char* notes :
       {"w/ MTP", "packed sequences, document mask", "ZeRO++ (hpZ, qwZ)", "PowerSGD rank 4",
        "power capped 400W", "clocks locked at 1.4 GHz", "NCCL_P2P_DISABLE=1", "sliding window"}) {
    EXPECT_EQ(lines(notes).size(), 1U) << notes;
  }
  for (const char* notes : {"w/o MTP", "no packing", "NCCL_P2P_DISABLE=0", "sliding window 512"}) {
    EXPECT_THAT(lines(notes), IsEmpty()) << notes;
  }
}

TEST(RemarkCells, WindowsOfAttention) {
  const auto window = [](const std::string& notes) {
    const Measurement row = row_of({{"notes", notes}});
    return row_network(row, framework_of(row).facts).value().sliding_window;
  };
  EXPECT_EQ(window("sliding window 512"), 512);
  EXPECT_EQ(window("sliding_window=512"), 512);
  EXPECT_EQ(window("sliding window 4096"), 0);  // longer than the sequence
  EXPECT_EQ(window("no sliding window"), 0);
  EXPECT_EQ(window("sliding window 4K"), 0);  // not 4 keys
  EXPECT_EQ(window("sliding window 5:1"), 0);
}

// What collectives are called says nothing more of which they are.
TEST(RemarkCells, CollectivesOfKinds) {
  const plan::Execution on = execution_of({{"overlap", "DP RS/AG; TP AG/RS GEMM overlap"}});
  EXPECT_TRUE(on.overlap_grad_reduce && on.overlap_param_gather && on.stream_tp);
  const plan::Execution off = execution_of({{"overlap", "no DP RS/AG; TP AG/RS: off"}});
  EXPECT_FALSE(off.overlap_grad_reduce || off.overlap_param_gather || off.stream_tp);
}

// Groups of micro-batches that the stages do not divide.
TEST(RemarkCells, UnevenInterleaving) {
  const auto schedule = [](const char* batch) {
    return row_plan(row_of({{"schedule", "interleaved"},
                            {"vpp", "2"},
                            {"num_microbatches", ""},
                            {"global_batch", batch}}))
        .value()
        .schedule;
  };
  EXPECT_EQ(schedule("16"), "interleaved");
  EXPECT_EQ(schedule("18"), "interleaved-uneven");
  EXPECT_THAT(predicted({{"schedule", "interleaved"},
                         {"vpp", "2"},
                         {"num_microbatches", ""},
                         {"global_batch", "18"}})
                  .assumed,
              Contains(HasSubstr("interleaved-uneven: 9 micro-batches on 2 stages")));
}

// Sizes that nobody states are those of micro-batches that the stages divide.
TEST(RemarkCells, TunedRunsInterleaveEvenly) {
  EXPECT_THAT(predicted({{"gpus", "16"},
                         {"pp", "4"},
                         {"vpp", "2"},
                         {"schedule", "interleaved"},
                         {"micro_batch", ""},
                         {"num_microbatches", ""},
                         {"global_batch", "24"},
                         {"confidence", "partial"}})
                  .assumed,
              Contains("micro_batch 1 (the fastest that fits)"));  // not 2 and 6 micro-batches
}

TEST(RemarkCells, StagesThatFrameworksShardBy) {
  const auto assumed = [](const Changes& changes) {
    Changes all = {{"confidence", "partial"}, {"zero_stage", ""}};
    all.insert(changes.begin(), changes.end());
    return predicted(all).assumed;
  };
  EXPECT_THAT(assumed({{"framework", "NeMo"}}), Contains("zero_stage 1"));
  EXPECT_THAT(assumed({{"framework", "Megatron-LM"}}),
              Contains("zero_stage 0 (the default of Megatron-LM)"));  // fits without
  EXPECT_THAT(assumed({{"framework", "DeepSpeed"},
                       {"model_family", "llama"},
                       {"model_name", "llama2-7b"},
                       {"layers", ""},
                       {"hidden", ""},
                       {"heads", ""},
                       {"vocab", ""},
                       {"tp", "1"},
                       {"pp", "1"},
                       {"dp", "8"}}),
              Contains(HasSubstr("(the first that fits)")));
}

}  // namespace
}  // namespace orrery::studies
