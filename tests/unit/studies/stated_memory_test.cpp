// SPDX-License-Identifier: Apache-2.0
// Which memory a row measured, and names of metrics, networks, frameworks and cells as logs and
// papers write them.
#include <gmock/gmock.h>

#include "models/blocks.hpp"
#include "studies/rows/framework_facts.hpp"
#include "studies/rows/metric.hpp"
#include "studies/rows/metric_name.hpp"
#include "studies/rows/named_network.hpp"
#include "studies/rows/row_cluster.hpp"
#include "studies/rows/row_network.hpp"
#include "studies/rows/row_words.hpp"
#include "studies/rows/zero_words.hpp"
#include "tests/unit/studies/testing.hpp"

namespace orrery::studies {
namespace {

using testing::Changes;
using testing::row_of;

Quantity memory_of(const std::string& metric, const std::string& notes,
                   const std::string& framework = "Megatron-LM") {
  const Measurement row = row_of({{"measured_metric", metric},
                                  {"measured_value", "10"},
                                  {"framework", framework},
                                  {"notes", notes}});
  const auto network = row_network(row, framework_of(row).facts);
  return measured_target(row, models::build_network(*network, "test"))->quantity;
}

TEST(StatedMemory, WordsBeforeTheFrameworksDefault) {
  EXPECT_EQ(memory_of("peak_mem_gib", "max_memory_reserved"), Quantity::ReservedMemory);
  EXPECT_EQ(memory_of("peak_mem_gib", "reserved"), Quantity::ReservedMemory);
  EXPECT_EQ(memory_of("peak_mem_gib", "", "torchtitan"), Quantity::ReservedMemory);
  EXPECT_EQ(memory_of("peak_mem_gib", "max_memory_allocated", "torchtitan"),
            Quantity::AllocatedMemory);
  EXPECT_EQ(memory_of("peak_mem_gb", "torch max_memory_allocated", "InternEvo"),
            Quantity::AllocatedMemory);
  EXPECT_EQ(memory_of("peak_mem_gb", "", "InternEvo"), Quantity::DeviceMemory);
  for (const char* notes : {"nvidia-smi", "device memory by NVML", "memory used (DCGM)",
                            "largest \"\"total\"\" (allocated and reserved are separate there)"}) {
    EXPECT_EQ(memory_of("peak_mem_gb", notes), Quantity::DeviceMemory) << notes;
  }
  EXPECT_EQ(memory_of("peak_mem_gb", "max_memory_reserved; nvidia-smi not used"),
            Quantity::ReservedMemory);
  EXPECT_EQ(memory_of("peak_mem_gb", "nodes reserved for the run"), Quantity::AllocatedMemory);
}

TEST(StatedMemory, CountersInTheMetricsName) {
  EXPECT_EQ(memory_of("peak_mem_reserved_gib", ""), Quantity::ReservedMemory);
  EXPECT_EQ(memory_of("peak_reserved_gib", ""), Quantity::ReservedMemory);
  EXPECT_EQ(memory_of("peak_mem_allocated_gib", "", "torchtitan"), Quantity::AllocatedMemory);
  EXPECT_EQ(memory_of("max_memory_allocated_gb", ""), Quantity::AllocatedMemory);
  EXPECT_EQ(metric_name("max memory reserved (MB)").name, "peak_mem_reserved_gb");
  EXPECT_EQ(metric_name("peak_gpu_mem_gib").name, "peak_mem_gib");
  EXPECT_FALSE(metric_name("total_mem_gib").is_known);
}

TEST(StatedMemory, MetricsOfLogs) {
  for (const char* name : {"avg iteration time (s)", "mean_step_time_s", "median_iteration_s"}) {
    EXPECT_EQ(metric_name(name).name, "iteration_s") << name;
    EXPECT_TRUE(metric_name(name).is_known) << name;
  }
  EXPECT_EQ(metric_name("avg iteration time (ms)").scale, 1e-3);
  EXPECT_EQ(metric_name("total_tokens_per_s").name, "tokens_per_s");
  EXPECT_EQ(metric_name("achieved TFLOP/s per GPU").name, "tflops_per_gpu");
  const Measurement row =
      row_of({{"measured_metric", "peak_mem_gib"}, {"measured_value", "45.6GiB(57%)"}});
  EXPECT_DOUBLE_EQ(row.value, 45.6);
  EXPECT_EQ(row_of({{"measured_metric", "mfu"}, {"measured_value", "52%"}}).value, 0.52);
}

TEST(StatedMemory, StagesOfZeroInWords) {
  for (const char* cell : {"FSDP1", "FSDP v2", "fully_shard", "Megatron-FSDP"}) {
    EXPECT_EQ(stage_of_zero(cell), 3) << cell;
  }
  EXPECT_EQ(stage_of_zero("Megatron dist-opt"), 1);
  EXPECT_EQ(stage_of_zero("None (DDP)"), 0);
  EXPECT_FALSE(stage_of_zero("none"));
  EXPECT_EQ(row_of({{"zero_stage", "none"}}).zero_stage, 0);
  EXPECT_EQ(row_of({{"zero_stage", "none"}, {"framework", "FSDP"}}).zero_stage, std::nullopt);
  for (const char* cell :
       {"FSDP + CPU offload", "FSDP offload", "FSDP2 + offload", "FULL_SHARD + cpu offload",
        "full_shard auto_wrap", "full_shard offload auto_wrap", "sharding stage 3", "Gemini",
        "ds_zero3", "p_g_os", "P_os+g+p"}) {
    EXPECT_EQ(stage_of_zero(cell), 3) << cell;
  }
  for (const char* cell : {"sharding stage2", "_HYBRID_SHARD_ZERO2", "shard_grad_op auto_wrap",
                           "group_sharded os_g", "ZeRO-2 + offload"}) {
    EXPECT_EQ(stage_of_zero(cell), 2) << cell;
  }
  for (const char* cell : {"use_distributed_optimizer", "optimizer state sharding", "P_os"}) {
    EXPECT_EQ(stage_of_zero(cell), 1) << cell;
  }
  EXPECT_EQ(row_of({{"zero_stage", ""}, {"framework", "Colossal-AI (Gemini)"}}).zero_stage, 3);
  EXPECT_EQ(precision_name("amp O1"), "fp16");
  EXPECT_EQ(precision_name("16-bit"), "mixed");
}

TEST(StatedMemory, FrameworksThatAlwaysShard) {
  for (const char* framework : {"LLM Foundry (Composer)", "torchtune", "OLMo-core"}) {
    EXPECT_TRUE(shards_parameters(row_of({{"framework", framework}, {"zero_stage", ""}})))
        << framework;
  }
  EXPECT_FALSE(shards_parameters(row_of({{"framework", "lingua"}, {"zero_stage", ""}})));
  const auto relative = [](const std::string& framework) {
    const Measurement row = row_of(
        {{"framework", framework}, {"tp", "1"}, {"pp", "1"}, {"dp", "8"}, {"zero_stage", ""}});
    return std::string(framework_of(row).facts.name);
  };
  EXPECT_EQ(relative("torchtune"), "PyTorch FSDP");
  EXPECT_EQ(relative("Galvatron"), "Hetu-Galvatron");
  EXPECT_EQ(relative("lingua"), "PyTorch DDP");
  EXPECT_EQ(relative("FlagScale"), "Megatron-LM");
  EXPECT_EQ(relative("MindSpeed-LLM"), "Megatron-LM");
}

// Without its point "gpt3-1.3b" is "GPT-3 13B", too.
TEST(StatedMemory, PointsInNames) {
  const auto layers = [](const std::string& name) {
    Changes blank = {{"model_name", name}, {"layers", ""}, {"hidden", ""}, {"heads", ""}};
    const auto network = named_network(row_of(blank));
    return network ? network->layers : 0;
  };
  EXPECT_EQ(layers("GPT-3 13B"), 40);
  EXPECT_EQ(layers("GPT-3 1.3B"), 24);
  EXPECT_EQ(layers("OPT-13B"), 40);
}

TEST(StatedMemory, ReleasesOfEfa) {
  const auto node = [](const std::string& network) {
    return row_cluster(row_of({{"gpu", "H100-80GB-SXM"}, {"inter_node", network}}))->node.name;
  };
  EXPECT_EQ(node("3200 Gbps EFAv2"), node("3200 Gbps EFA"));
}

}  // namespace
}  // namespace orrery::studies
