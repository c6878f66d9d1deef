// SPDX-License-Identifier: Apache-2.0
// Remarks about other runs, plans and benchmarks say nothing of the row's own.
#include <gmock/gmock.h>

#include <algorithm>

#include "studies/rows/denials.hpp"
#include "studies/rows/framework_facts.hpp"
#include "studies/rows/metric.hpp"
#include "studies/rows/row_network.hpp"
#include "studies/rows/row_plan.hpp"
#include "studies/rows/settings.hpp"
#include "studies/rows/stated_gradients.hpp"
#include "studies/rows/stated_groups.hpp"
#include "studies/rows/stated_offload.hpp"
#include "studies/rows/stated_optimizer.hpp"
#include "studies/rows/stated_stages.hpp"
#include "tests/unit/studies/testing.hpp"

namespace orrery::studies {
namespace {

using testing::Changes;
using ::testing::ElementsAre;
using testing::execution_of;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::row_of;

TEST(OtherRuns, ClausesAboutThemAreDropped) {
  for (const char* text :
       {"unlike the FSDP run", "compared to HSDP", "HSDP vs FSDP 3%", "planned: HSDP",
        "an earlier FSDP run with HSDP", "HSDP (other row)", "HSDP tried elsewhere",
        "HSDP was 4% slower", "HSDP in the paper", "the baseline in HSDP", "HSDP would be next",
        "HSDP for debugging", "instead of HSDP", "HSDP (planned)", "HSDP run is separate"}) {
    EXPECT_EQ(about_this_run(text).find("hsdp"), std::string::npos) << text;
    EXPECT_FALSE(says_and_means(text, "HSDP")) << text;
  }
  EXPECT_EQ(about_this_run("unlike the paper, which shards; AdamW"), ",; adamw");
}

TEST(OtherRuns, ClausesAboutThisOneStay) {
  for (const char* text :
       {"HSDP instead of FSDP", "HSDP, unlike the paper", "HSDP as in the paper",
        "HSDP (unlike FSDP runs)", "every other layer, HSDP", "HSDP for faster gathers",
        "HSDP as stated in the paper", "shards are of HSDP for faster gathers",
        "one model replica a row; HSDP", "the next step is HSDP", "HSDP (offload was slower)"}) {
    EXPECT_TRUE(says_and_means(text, "HSDP")) << text;
  }
  EXPECT_EQ(undenied("hfu vs 312 tflops peak"), "hfu vs 312 tflops peak");
}

TEST(OtherRuns, SwitchesAndNumbersOfThem) {
  constexpr auto kSize = std::to_array<std::string_view>({"shard size"});
  constexpr auto kGraphs = std::to_array<std::string_view>({"cuda graph"});
  EXPECT_FALSE(number_set("compared to shard size 8", kSize));
  EXPECT_EQ(number_set("shard size 8; compared to FSDP 4% faster", kSize), 8);
  EXPECT_FALSE(switch_set("an earlier run had cuda graph=True", kGraphs));
  EXPECT_EQ(switch_set("cuda graph (off)", kGraphs), false);
}

// A word alone in a bracket denies what stands before it.
TEST(OtherRuns, BracketsThatDeny) {
  EXPECT_FALSE(says_and_means("torch.compile (off)", "torch.compile"));
  EXPECT_FALSE(says_and_means("Ulysses (not used)", "ulysses"));
  EXPECT_TRUE(says_and_means("Ulysses (ring not used)", "ulysses"));
}

TEST(OtherRuns, UnfusedLosses) {
  const auto fused = [](const std::string& notes) {
    return execution_of({{"notes", notes}}).fused_cross_entropy;
  };
  EXPECT_FALSE(fused("unfused cross entropy"));
  EXPECT_TRUE(fused("fused cross-entropy"));
}

TEST(OtherRuns, EndsOfPipelinesCountLayersAlone) {
  const auto stages = [](const std::string& notes, int blocks = 80) {
    return stated_stages(row_of({{"notes", notes}}), {blocks, 4, 1});
  };
  for (const char* notes :
       {"last stage 18% slower", "memory of the last stage: 18 GB", "first stage of 18: 4k context",
        "first stage 18", "train/test split 18 20 20 20", "dataset split: 18/20/20/20",
        "first stage 18 layers in an earlier run"}) {
    EXPECT_THAT(stages(notes), IsEmpty()) << notes;
  }
  EXPECT_THAT(stages("first stage has 18 layers; last stage: 18 layers"),
              ElementsAre(19, 21, 21, 19));
  EXPECT_THAT(stages("uneven split 18/20/20/20"), ElementsAre(19, 20, 20, 21));
  EXPECT_THAT(stages("stage split (18, 20, 20, 20)"), ElementsAre(19, 20, 20, 21));
}

Quantity quantity_read(const std::string& metric, const std::string& notes) {
  const Measurement row = row_of({{"measured_metric", metric}, {"notes", notes}});
  return measured_target(
             row, models::build_network(row_network(row, framework_of(row).facts).value(), "t"))
      .value()
      .quantity;
}

TEST(OtherRuns, ToolsThatReadMemory) {
  for (const char* notes :
       {"clocks locked with nvidia-smi -lgc", "power from nvidia-smi", "DCGM: SM activity 0.6",
        "nvml 690 W", "max job length reserved 24 h", "peak GPUs reserved", "nvidia-smi topo -m"}) {
    EXPECT_EQ(quantity_read("peak_mem_gib", notes), Quantity::AllocatedMemory) << notes;
  }
  for (const char* notes : {"nvidia-smi snapshot", "GPU memory from nvidia-smi 45 GB",
                            "from nvidia-smi", "DCGM used"}) {
    EXPECT_EQ(quantity_read("peak_mem_gib", notes), Quantity::DeviceMemory) << notes;
  }
  EXPECT_EQ(quantity_read("peak_mem_gib", "60 GB reserved"), Quantity::ReservedMemory);
}

TEST(OtherRuns, MetricsOfMemory) {
  const auto target = [](const std::string& metric, const std::string& value) {
    const Measurement row = row_of({{"measured_metric", metric}, {"measured_value", value}});
    return measured_target(
        row, models::build_network(row_network(row, framework_of(row).facts).value(), "t"));
  };
  constexpr double kTwo = 2.0 * 1024 * 1024 * 1024;
  EXPECT_DOUBLE_EQ(target("peak_mem_gb", "2").value().value, kTwo);
  EXPECT_DOUBLE_EQ(target("peak_mem_reserved_gib", "2").value().value, kTwo);
  EXPECT_DOUBLE_EQ(target("peak_mem_bytes", "2147483648").value().value, kTwo);
  EXPECT_DOUBLE_EQ(target("peak_mem_bytes", "2 GiB").value().value, kTwo);
  for (const char* metric : {"peak_mem_fraction", "peak_mem_utilisation", "peak_mem_host_gib",
                             "peak_mem_percent", "peak_mem_saved_gib"}) {
    EXPECT_THAT(target(metric, "2").error(), HasSubstr("cannot be compared")) << metric;
  }
}

TEST(OtherRuns, FormatsOfOtherSums) {
  for (const char* text :
       {"reduced precision bf16", "memory reduced to bf16 levels", "gradients: bf16 params",
        "NCCL all-reduce bf16 busbw 320", "activations all-reduced in bf16", "loss reduced in bf16",
        "fp32 grad norm", "softmax reduction in fp32", "reduce in fp32 for RMSNorm",
        "bf16 grad reduce was 3% faster", "unlike the paper, which reduces gradients in bf16"}) {
    EXPECT_FALSE(stated_fp32_gradients(text)) << text;
  }
  for (const char* text : {"reduce_dtype: torch.bfloat16", "gradient communication in bf16",
                           "MixedPrecision(reduce_dtype=torch.bfloat16)"}) {
    EXPECT_EQ(stated_fp32_gradients(text), false) << text;
  }
  EXPECT_EQ(stated_fp32_gradients("grads fp32 params bf16"), true);
  EXPECT_EQ(stated_fp32_gradients("reduce_dtype=bf16 param_dtype=bf16"), false);
}

TEST(OtherRuns, WhatElseIsOffloaded) {
  for (const char* notes :
       {"checkpoints offloaded to CPU", "dataset offloaded to host", "evaluation offloaded to CPU",
        "tokenisation offloaded to the CPU, AdamW", "offload tested in the next row",
        "logs, offloaded to CPU"}) {
    EXPECT_FALSE(stated_offload(row_of({{"notes", notes}})).any()) << notes;
  }
  for (const char* notes :
       {"CPU offload", "offload to host", "optimizer, offloaded to CPU", "data on SSD, CPU offload",
        "optimizer offloaded to CPU, dataset on NVMe"}) {
    EXPECT_EQ(stated_offload(row_of({{"notes", notes}})).optimizer, plan::Tier::Host) << notes;
  }
  const auto inputs = stated_offload(row_of({{"notes", "gradient checkpoints offloaded to CPU"}}));
  EXPECT_EQ(inputs.activations, 1);  // of layers
  EXPECT_EQ(inputs.optimizer, plan::Tier::Device);
  EXPECT_EQ(stated_offload(row_of({{"framework", "Accelerate, FSDP CPU offload"}})).optimizer,
            plan::Tier::Host);
}

int mesh_shards(const std::string& notes, const std::string& dp = "16") {
  return state_shards(row_of(
      {{"gpus", dp}, {"tp", "1"}, {"pp", "1"}, {"dp", dp}, {"zero_stage", "3"}, {"notes", notes}}));
}

TEST(StatedMeshes, WhichFactorShards) {
  for (const char* notes :
       {"HSDP 2x8", "HSDP 8x2", "HSDP (2, 8)", "HSDP 2-way replicate 8-way shard",
        "HSDP 2 groups of 8", "2 replicas of 8 shards", "device mesh (2, 8)",
        "sharded over 8 GPUs, replicated 2 times", "HSDP with 8-way shard, 2-way replicate",
        "HYBRID_SHARD (2, 8)", "HSDP (shard 8 x replicate 2)"}) {
    EXPECT_EQ(mesh_shards(notes), 8) << notes;
  }
  EXPECT_EQ(mesh_shards("HSDP: 4-way replicate, 4-way shard"), 4);
  EXPECT_EQ(mesh_shards("8-way replicate, 2-way shard"), 2);
  EXPECT_EQ(mesh_shards("HSDP 1x16"), 16);
  EXPECT_EQ(mesh_shards("HSDP 2x8; torch 2.4"), 8);
}

// Without a name of sharded copies words tell of both numbers.
TEST(StatedMeshes, OtherNumbersAreNone) {
  for (const char* notes :
       {"2x8 GPUs", "2 nodes x 8 GPUs", "replicated norm, sharded weights 2x8",
        "dataset sharded over 2 nodes, 8 replicas", "sharded checkpoint, 8 copies of 2 files",
        "mesh shape (2, 8)", "no HSDP 2x8", "HSDP 2x8 in another run"}) {
    EXPECT_EQ(mesh_shards(notes), 0) << notes;
  }
}

TEST(StatedMeshes, SaysWhichAreNotRead) {
  const auto lines = [](const std::string& notes) {
    return unread_groups(row_of({{"gpus", "64"},
                                 {"tp", "1"},
                                 {"pp", "1"},
                                 {"dp", "64"},
                                 {"zero_stage", "3"},
                                 {"notes", notes}}));
  };
  EXPECT_THAT(lines("HSDP 4x16"), ElementsAre(HasSubstr("groups of ranks as not stated")));
  EXPECT_THAT(lines("HSDP (2, 8)"), ElementsAre("\"hsdp (2, 8)\": groups of ranks as not stated"));
  EXPECT_THAT(lines("HSDP 8x8"), IsEmpty());
  EXPECT_THAT(lines("no HSDP 4x16"), IsEmpty());
}

}  // namespace
}  // namespace orrery::studies
