// SPDX-License-Identifier: Apache-2.0
// Words that look like settings but state none: a plan that is fully stated stays as it is.
#include <gmock/gmock.h>

#include "studies/rows/other_training.hpp"
#include "studies/rows/row_cluster.hpp"
#include "studies/rows/row_plan.hpp"
#include "studies/rows/stated_groups.hpp"
#include "studies/rows/stated_offload.hpp"
#include "studies/rows/stated_overlap.hpp"
#include "studies/rows/stated_scaling.hpp"
#include "studies/rows/zero_words.hpp"
#include "tests/unit/studies/testing.hpp"

namespace orrery::studies {
namespace {

using testing::Changes;
using testing::execution_of;
using ::testing::IsEmpty;
using testing::row_of;

TEST(EagerWords, WholeNodesHoldAnyGroups) {
  const auto used = [](const std::string& gpu, const std::string& gpus, const std::string& tp,
                       const std::string& cp = "") {
    const auto cluster = row_cluster(
        row_of({{"gpu", gpu}, {"gpus", gpus}, {"gpus_per_node", ""}, {"tp", tp}, {"cp", cp}}));
    return cluster ? cluster->node.gpus : 0;
  };
  EXPECT_EQ(used("A100-80GB-SXM", "24", "3"), 8);
  EXPECT_EQ(used("A100-80GB-SXM", "48", "6"), 8);
  EXPECT_EQ(used("A100-80GB-SXM", "24", "1", "3"), 8);
  EXPECT_EQ(used("GB200", "144", "16"), used("GB200", "144", "1"));
}

TEST(EagerWords, StagesBesideStages) {
  for (const char* cell : {"DDP + distributed optimizer", "DDP + ZeRO-1", "DDP with ZeRO-1",
                           "no + dist opt", "off + ZeRO-1"}) {
    EXPECT_EQ(stage_of_zero(cell), 1) << cell;
  }
  for (const char* cell : {"FSDP + SHARD_GRAD_OP", "FSDP with SHARD_GRAD_OP", "FSDP + ZeRO-2",
                           "FSDP with ZeRO-2", "HSDP + ZeRO-2"}) {
    EXPECT_EQ(stage_of_zero(cell), 2) << cell;
  }
  for (const char* cell : {"FSDP with CPU offload", "FSDP + TP", "FSDP + DDP", "FSDP + auto wrap",
                           "FSDP2 + tensor parallel + CPU offload"}) {
    EXPECT_EQ(stage_of_zero(cell), 3) << cell;
  }
  EXPECT_FALSE(stage_of_zero("FSDP + magic"));
}

TEST(EagerWords, StatesThatStayOnTheGpu) {
  for (const char* notes :
       {"optimizer initialised on CPU", "model and optimizer initialised on CPU",
        "optimizer state saved on CPU every 1000 steps", "optimizer step time measured on CPU",
        "optimizer launched on CPU by python", "adam kernels launched on the host thread",
        "adam with data on host", "master process on cpu", "master port on host 0",
        "master address on host node1", "webmaster on host", "master on host",
        "activation checkpointing on host", "gradient checkpoint timings on CPU",
        "optimizer in host memory?", "optimizer offload in appendix",
        "activations offloaded in the ablation of section 5"}) {
    EXPECT_FALSE(stated_offload(row_of({{"recompute", "full"}, {"notes", notes}})).any()) << notes;
  }
  for (const char* notes :
       {"optimizer states kept in CPU memory", "Adam step on CPU", "AdamW runs on the CPU",
        "master weights on the host", "optimizer states in host RAM (pinned)"}) {
    EXPECT_EQ(stated_offload(row_of({{"notes", notes}})).optimizer, plan::Tier::Host) << notes;
  }
}

TEST(EagerWords, NumbersBehindSequences) {
  const auto context = [](const std::string& notes, const std::string& dp) {
    return row_of({{"tp", "1"}, {"gpus", "64"}, {"pp", "1"}, {"dp", dp}, {"notes", notes}}).cp;
  };
  for (const char* notes :
       {"SP 2: see table 4", "sequence parallel 2 in ablation", "ring attention 2.0",
        "context parallelism 2 tested, not used", "SP: 64K tokens", "sp 16 nodes", "SP 8 not used",
        "sequence parallel 8k", "Fig. SP 3"}) {
    EXPECT_FALSE(context(notes, "64")) << notes;
    EXPECT_FALSE(context(notes, "")) << notes;
  }
  EXPECT_EQ(context("SP 2", "32"), 2);
  EXPECT_EQ(context("ring attention 4", ""), 4);
  EXPECT_FALSE(context("SP 2", "64"));  // no GPUs are left for them
  EXPECT_FALSE(context("SP 3", ""));
}

// "cp" is a command, too; ranks that counts leave over are stages then.
TEST(EagerWords, GpusLeftOver) {
  const auto stages = [](Changes changes) {
    changes.insert({{"gpus", "64"}, {"tp", "2"}, {"cp", ""}, {"pp", ""}, {"dp", "8"}});
    changes.insert({{"vpp", ""}, {"schedule", ""}, {"num_microbatches", ""}});
    changes.insert({{"global_batch", "64"}});
    return testing::predicted(changes).assumed;
  };
  using ::testing::Contains;
  using ::testing::Not;
  EXPECT_THAT(stages({{"notes", "checkpoints copied with cp"}}), Contains("pp 4"));
  EXPECT_THAT(stages({{"schedule", "none"}, {"cp", "1"}}), Contains("pp 4"));
  EXPECT_THAT(stages({{"schedule", "none"}, {"cp", "1"}, {"notes", "HSDP"}, {"zero_stage", "3"}}),
              Not(Contains("pp 4")));
}

TEST(EagerWords, GroupsHoldRanksOverSequences) {
  const auto shards = [](const std::string& cp, const std::string& dp, const std::string& notes) {
    const Changes changes = {{"gpus", "64"},
                             {"tp", "1"},
                             {"pp", "1"},
                             {"cp", cp},
                             {"dp", dp},
                             {"vpp", ""},
                             {"zero_stage", "3"},
                             {"seq_len", "8192"},
                             {"notes", notes},
                             {"num_microbatches", ""},
                             {"global_batch", "64"}};
    const auto plan = row_plan(row_of(changes));
    EXPECT_TRUE(plan) << notes << (plan ? "" : plan.error());
    return plan ? plan->blocks.front().layout.shard_degree : -1;
  };
  EXPECT_EQ(shards("4", "16", "HSDP"), 8);
  EXPECT_EQ(shards("8", "8", "HSDP"), 8);
  EXPECT_EQ(shards("2", "32", "dp_shard=8, dp_replicate=4"), 16);
  EXPECT_EQ(shards("2", "32", "dp_replicate=4"), 16);
  EXPECT_EQ(shards("2", "32", "HSDP with shard group of 16"), 16);
  EXPECT_EQ(shards("1", "64", "HSDP"), 8);
}

TEST(EagerWords, RoundTokens) {
  const auto batch = [](const std::string& cell) {
    return row_of({{"seq_len", "4096"},
                   {"gpus", "16"},
                   {"dp", "16"},
                   {"tp", "1"},
                   {"pp", "1"},
                   {"num_microbatches", ""},
                   {"global_batch", cell}})
        .global_batch;
  };
  EXPECT_EQ(batch("1 million tokens"), 256);
  EXPECT_EQ(batch("4 million tokens"), 1024);
  EXPECT_EQ(batch("1M tokens"), 256);
  EXPECT_EQ(batch("0.5 million tokens"), 128);
  for (const char* absurd : {"inf tokens", "1e30 tokens", "1e30M tokens"}) {
    EXPECT_FALSE(batch(absurd)) << absurd;
  }
}

TEST(EagerWords, NumbersBesideHeadsOfKeys) {
  const auto heads = [](const std::string& cell) {
    return row_of({{"hidden", "6144"}, {"heads", cell}}).kv_heads;
  };
  for (const char* eight : {"48 (head_dim=16, KV 8)", "48 (128-dim, 8 KV)", "48 (8 KV heads)",
                            "48 (GQA with 8 groups)", "48 (num_kv_heads=8)", "48 (GQA-8)"}) {
    EXPECT_EQ(heads(eight), 8) << eight;
  }
  for (const char* none : {"48 (no GQA; 16 per rank)", "48 (16 per rank)", "48 (KV cache, 16)"}) {
    EXPECT_FALSE(heads(none)) << none;
  }
}

TEST(EagerWords, OverlapOfNobodysRanks) {
  for (const char* words : {"no overlap in data", "the tensor overlap", "gradient reduce: sync",
                            "data pipeline overlapped with compute"}) {
    EXPECT_EQ(execution_of({{"overlap", words}}), execution_of({})) << words;
    EXPECT_EQ(unread_overlap(row_of({{"overlap", words}})).size(), 1U) << words;
  }
  EXPECT_TRUE(execution_of({{"overlap", "tensor parallel overlap"}}).stream_tp);
  EXPECT_TRUE(execution_of({{"overlap", "gradient sync overlapped"}}).overlap_grad_reduce);
}

TEST(EagerWords, OffloadInTheCellOfRecomputation) {
  const auto read = [](const std::string& cell) { return row_of({{"recompute", cell}}); };
  EXPECT_EQ(read("selective/full").recompute, "selective");
  const plan::Offload both = stated_offload(read("activation offload + optimizer offload"));
  EXPECT_EQ(both.activations, 1);
  EXPECT_EQ(both.optimizer, plan::Tier::Host);
  EXPECT_EQ(read("none + optimizer offload").recompute, "none");
  EXPECT_EQ(stated_offload(read("none + optimizer offload")).optimizer, plan::Tier::Host);
}

TEST(EagerWords, ReleasesScalesAndExperts) {
  const auto fused = [](const std::string& release) {
    return execution_of({{"framework", "NeMo/Megatron-Core " + release}}).fused_cross_entropy;
  };
  EXPECT_EQ(fused("NCCL 2.26.2"), fused("24.07"));
  EXPECT_NE(fused("26.02"), fused("24.07"));
  const Changes titan = {{"framework", "torchtitan"}, {"notes", "compiled with gcc 11"}};
  EXPECT_FALSE(execution_of(titan).fused_kernels);
  const auto scales = [](const std::string& detail) {
    return unread_scaling(row_of({{"precision", "fp8"}, {"precision_detail", detail}}));
  };
  for (const char* other : {"loss scaling", "static loss scale 1024", "scaling factor 1",
                            "elementwise bf16", "recipe: hybrid", "per-step amax reduction"}) {
    EXPECT_THAT(scales(other), IsEmpty()) << other;
  }
  const auto scaling = [](const std::string& detail) {
    return stated_scaling(row_of({{"precision", "fp8"}, {"precision_detail", detail}}));
  };
  EXPECT_EQ(scaling("fp8 scaling: delayed"), plan::Fp8Scaling::Delayed);
  EXPECT_EQ(scaling("FP8-SC"), plan::Fp8Scaling::Blocks);
  for (const char* unread : {"per-channel scaling", "fp8 scaling by groups"}) {
    EXPECT_EQ(scales(unread).size(), 1U) << unread;
  }
  EXPECT_EQ(no_plain_training(row_of({{"notes", "linear probing not done"}})), "");
  const std::string apart = "grouped gemm off";
  EXPECT_THAT(unmodelled_remarks(row_of({{"notes", apart}})), IsEmpty());
  EXPECT_EQ(unmodelled_remarks(row_of(testing::mixture({{"notes", apart}}))).size(), 1U);
}

}  // namespace
}  // namespace orrery::studies
