// SPDX-License-Identifier: Apache-2.0
// Notes that hold of other rows of their source, or of what a run might do, leave this row as its
// columns state it.
#include <gmock/gmock.h>

#include "studies/rows/conditions.hpp"
#include "studies/rows/denials.hpp"
#include "studies/rows/other_training.hpp"
#include "studies/rows/stated_groups.hpp"
#include "studies/rows/stated_offload.hpp"
#include "studies/rows/stated_optimizer.hpp"
#include "tests/unit/studies/testing.hpp"

namespace orrery::studies {
namespace {

using testing::Changes;
using ::testing::IsEmpty;
using testing::row_of;

TEST(ConditionalNotes, ClausesOfSomeRuns) {
  for (const char* clause :
       {"tp=8 used only for the 70b model", "tp 4 in the 70b rows", "cp=4 for 128k",
        "pp=2 above 64 gpus", "ep=8 for the moe rows", "hsdp used only on 512 gpus",
        "vpp=3 stated for 175b and 530b only", "recompute only where memory does not suffice",
        "hsdp on 512 gpus only", "fsdp in 70b rows only", "recompute beyond 16k",
        "offload only when memory is short", "zero-3 for larger models"}) {
    EXPECT_TRUE(names_condition(clause)) << clause;
    EXPECT_THAT(about_this_run(clause), IsEmpty()) << clause;
  }
  for (const char* clause :
       {"fsdp only", "tp=8 for all models", "sharded over 8 gpus", "only the last 4 layers",
        "recompute only for attention", "optimizer states only on the host", "above 50% mfu",
        "fsdp on 512 gpus", "zero-1 in both rows", "sgd for 300b tokens", "tp 8 in a node"}) {
    EXPECT_FALSE(names_condition(clause)) << clause;
  }
  EXPECT_EQ(about_this_run("tp=8 (only for 70b)").find("tp"), std::string::npos);
  EXPECT_NE(about_this_run("tp=8 (70b weights)").find("tp"), std::string::npos);
}

TEST(ConditionalNotes, CountsAndKindsOfRunsAreNone) {
  for (const char* clause : {"full recompute measured in 5 runs",
                             "recompute in mixed-precision runs", "fsdp in 3 repeated runs"}) {
    EXPECT_FALSE(names_condition(clause)) << clause;
  }
  EXPECT_TRUE(names_condition("recompute in moe runs"));
  EXPECT_TRUE(is_condition("only/for 70b"));
  EXPECT_TRUE(is_condition("70b-only"));
  EXPECT_FALSE(is_condition("tp=8"));
}

TEST(ConditionalNotes, OfTheRunItself) {
  const auto said = [](std::string_view text) {
    return without_own_conditions(text, {"GPT-NeoX 20B", 20.6, 64, 2048});
  };
  for (const char* text :
       {"Full recompute for the 20B model", "Full recompute only on 64 GPUs",
        "Full recompute on 64 GPUs only", "Full recompute for 2K context",
        "Full recompute above 32 GPUs", "Full recompute below 4K", "Full recompute beyond 7B",
        "Full recompute used only for 20B and 175B", "Full recompute for 20.6B"}) {
    EXPECT_EQ(said(text), "Full recompute") << text;
  }
  EXPECT_EQ(said("TP=8 (only for 20B), PP=2 for the 7B model. CP=2 above 1K."),
            "TP=8 (), PP=2 for the 7B model. CP=2.");
  for (const char* text :
       {"TP=8 for the 7B model", "TP=8 only on 512 GPUs", "TP=8 for 128K", "TP=8 above 64 GPUs",
        "TP=8 below 2K", "TP=8 but not for the 20B model", "HSDP on 64 GPUs",
        "TP=8 for larger models", "sgd for 20B tokens", "TP=8 above 2k GPUs", ""}) {
    EXPECT_EQ(said(text), text);
  }
  EXPECT_EQ(without_own_conditions("TP=8 for the 7B model", {"GPT 6.7B", {}, {}, {}}),
            "TP=8 for the 7B model");
  EXPECT_EQ(without_own_conditions("TP=8 above 7B", {}), "TP=8 above 7B");
  EXPECT_EQ(row_of({{"recompute", ""}, {"notes", "full recompute for 2K"}}).recompute, "full");
  EXPECT_EQ(row_of({{"recompute", ""}, {"notes", "full recompute for 4K"}}).recompute, "");
}

TEST(ConditionalNotes, Possibilities) {
  for (const char* clause :
       {"8-bit adam is left for future work", "adafactor was considered",
        "full recomputation is needed above 16k tokens", "fsdp2 prototype in a branch",
        "hsdp gives no gain here", "eager attention ooms", "zero-2 runs out of memory",
        "without flash attention the run needs 2x memory"}) {
    EXPECT_THAT(about_this_run(clause), IsEmpty()) << clause;
  }
  for (const char* clause : {"no recompute needed", "full recompute needed to fit", "fsdp2"}) {
    EXPECT_EQ(about_this_run(clause), clause);
  }
}

TEST(ConditionalNotes, Degrees) {
  const auto degrees = [](const std::string& notes, Changes changes = {}) {
    changes.merge(Changes{{"tp", ""}, {"pp", ""}, {"dp", ""}, {"gpus", "64"}, {"notes", notes}});
    const Measurement row = row_of(changes);
    return std::vector<OptionalCount>{row.tp, row.pp, row.cp};
  };
  using Degrees = std::vector<OptionalCount>;
  const Degrees open(3);
  for (const char* notes : {"TP=8 used only for the 70B model", "TP 4 in the 70B rows",
                            "CP=4 for 128K", "PP=2 above 64 GPUs", "TP=128", "TP=3"}) {
    EXPECT_EQ(degrees(notes), open) << notes;
  }
  EXPECT_EQ(degrees("TP=8, PP=4"), (Degrees{8, 4, std::nullopt}));
  for (const char* notes :
       {"TP8, PP4", "TP8-PP4", "TP-8, PP-4", "8-way tensor parallelism, 4-way pipeline parallelism",
        "8-way tensor and 4-way pipeline parallelism", "8-way TP / 4-way PP", "t=8, p=4",
        "TP 8 for 2K, PP=4 above 32 GPUs"}) {
    EXPECT_EQ(degrees(notes), (Degrees{8, 4, std::nullopt})) << notes;
  }
  for (const char* notes : {"p=2", "t=8", "t=8, p=0.1", "no TP8", "TP8 for the 70B model",
                            "8-way data parallelism", "8-way tensor cores of tpu4"}) {
    EXPECT_EQ(degrees(notes).back(), std::nullopt) << notes;
    EXPECT_EQ(degrees(notes)[1], std::nullopt) << notes;
  }
  EXPECT_EQ(degrees("no TP8"), open);
  EXPECT_EQ(degrees("t=8, p=0.1"), open);
  EXPECT_EQ(degrees("TP=8, PP=16"), (Degrees{8, std::nullopt, std::nullopt}));
  // The stated degrees leave no GPUs for it.
  EXPECT_EQ(degrees("TP=8", {{"dp", "64"}}), open);
  EXPECT_EQ(degrees("TP=8", {{"dp", "8"}}), (Degrees{8, std::nullopt, std::nullopt}));
  EXPECT_EQ(row_of({{"cp", ""}, {"notes", "CP=4"}}).cp, std::nullopt);
  EXPECT_EQ(row_of({{"ep", ""}, {"notes", "EP=8 for the MoE rows"}}).ep, std::nullopt);
  EXPECT_EQ(row_of({{"ep", ""}, {"notes", "EP=4"}}).ep, 4);             // among the ranks of 8 GPUs
  EXPECT_EQ(row_of({{"ep", ""}, {"notes", "EP=8"}}).ep, std::nullopt);  // two stages
}

TEST(ConditionalNotes, Chunks) {
  const auto chunks = [](const std::string& notes) {
    return row_of({{"vpp", ""}, {"schedule", "interleaved"}, {"notes", notes}}).vpp;
  };
  EXPECT_EQ(chunks("vpp=3"), 3);
  EXPECT_EQ(chunks("vpp=3 stated for 175B and 530B only"), std::nullopt);
  EXPECT_EQ(chunks("vpp=48"), std::nullopt);  // 24 layers on two stages
}

TEST(ConditionalNotes, AttentionKernels) {
  const auto kernel = [](const std::string& notes) {
    return row_of({{"attention_impl", ""}, {"notes", notes}}).attention_impl;
  };
  for (const char* notes : {"FlashAttention-3 was not available at that time",
                            "without flash attention the run needs 2x memory",
                            "without flash attention memory doubles", "eager attention OOMs"}) {
    EXPECT_THAT(kernel(notes), IsEmpty()) << notes;
  }
  for (const char* notes : {"attention with plain matmuls", "attention by bmm and softmax"}) {
    EXPECT_EQ(kernel(notes), notes);
  }
  EXPECT_THAT(kernel("attention matmuls in bf16"), IsEmpty());
  for (const char* notes :
       {"no FlashAttention", "FlashAttention was not yet available", "flash attention: off"}) {
    EXPECT_EQ(kernel(notes).substr(0, 7), "unfused") << notes;
  }
}

TEST(ConditionalNotes, RecomputationAndStages) {
  for (const char* notes :
       {"full recomputation is needed above 16K tokens",
        "recompute only where memory does not suffice", "OOM without recomputation"}) {
    EXPECT_THAT(row_of({{"recompute", ""}, {"notes", notes}}).recompute, IsEmpty()) << notes;
  }
  for (const char* notes : {"FSDP2 prototype in a branch", "model fits on one GPU with ZeRO-3",
                            "ZeRO-3 for the 70B model", "FSDP was not yet implemented"}) {
    EXPECT_EQ(row_of({{"zero_stage", ""}, {"notes", notes}}).zero_stage, std::nullopt) << notes;
  }
}

TEST(ConditionalNotes, OptimizersGroupsAndObjectives) {
  for (const char* notes : {"8-bit Adam is left for future work", "Adafactor was considered"}) {
    EXPECT_FALSE(stated_optimizer(row_of({{"notes", notes}}))) << notes;
  }
  for (const char* notes : {"HSDP used only on 512 GPUs", "HSDP gives no gain here",
                            "HSDP was not yet available", "HSDP (only on 512 GPUs)"}) {
    EXPECT_EQ(state_shards(row_of({{"gpus", "64"},
                                   {"dp", "64"},
                                   {"tp", "1"},
                                   {"pp", "1"},
                                   {"zero_stage", "3"},
                                   {"notes", notes}})),
              0)
        << notes;
  }
  EXPECT_THAT(no_plain_training(row_of({{"notes", "RLHF not covered"}})), IsEmpty());
}

// A text that states no share leaves the share that another states, wherever they stand.
TEST(ConditionalNotes, SharesOfOffloadStay) {
  const auto share = [](const std::string& detail, const std::string& notes) {
    return stated_offload(
               row_of({{"recompute", "custom"}, {"recompute_detail", detail}, {"notes", notes}}))
        .activations;
  };
  constexpr const char* kTenth = "norms; offload 10% of activations to host";
  EXPECT_DOUBLE_EQ(share(kTenth, "activation offload overlap"), 0.1);
  EXPECT_DOUBLE_EQ(share(kTenth, "activations are offloaded"), 0.1);
  EXPECT_DOUBLE_EQ(share(kTenth, "activation offload ratio 0.4"), 0.4);
  EXPECT_DOUBLE_EQ(share("activations offloaded", "activation offload ratio 0.4"), 0.4);
  EXPECT_DOUBLE_EQ(share("norms", "activations are offloaded"), 1);
}

}  // namespace
}  // namespace orrery::studies
