// SPDX-License-Identifier: Apache-2.0
// Names of frameworks, however they are spelt.
#include <gtest/gtest.h>

#include <map>

#include "studies/rows/row_plan.hpp"
#include "tests/unit/studies/testing.hpp"

namespace orrery::studies {
namespace {

using testing::row_of;

TEST(FrameworkNames, AreOneHoweverTheyAreSpelt) {
  const auto memory = [](const std::string& framework) {
    return row_memory(row_of({{"framework", framework}, {"experts", "8"}}));
  };
  const plan::MemoryFacts usual = memory("Megatron-LM 0.14+TE2.11");
  EXPECT_NE(memory("Megatron-LM 0.12").product_workspaces, usual.product_workspaces);
  for (const std::string name :
       {"Megatron LM 0.14+TE2.11", "Megatron Core 0.14 + TE v2.11", "megatron_core 0.14, TE-2.11",
        "Megatron-LM 0.14 + Transformer Engine 2.11"}) {
    EXPECT_EQ(memory(name).product_workspaces, usual.product_workspaces) << name;
    EXPECT_EQ(memory(name).output_placeholder, usual.output_placeholder) << name;
    EXPECT_EQ(memory(name).exchange_stream, usual.exchange_stream) << name;
  }
  const auto compiled = [](const std::string& framework) {
    const Measurement row = row_of({{"framework", framework}, {"precision", "fp8"}});
    return row_execution(row, framework_of(row).facts).fused_kernels;
  };
  EXPECT_TRUE(compiled("torchtitan (FSDP2)"));
  EXPECT_TRUE(compiled("torch titan"));
  EXPECT_EQ(framework_of(row_of({{"framework", "AXLearn (v0.1)"}})).facts.name, "MaxText");
  EXPECT_EQ(framework_of(row_of({{"framework", "Alpa (JAX)"}})).facts.name, "MaxText");
  EXPECT_EQ(framework_of(row_of({{"framework", "Stanford Alpaca (HF FSDP)"}})).facts.name,
            "PyTorch FSDP");
}

// A container's release, a fork's name before what it forks, the library by its short name.
TEST(FrameworkNames, InOtherWords) {
  for (const auto& [name, known] : std::map<std::string, std::string>{
           {"torchtitan v0.2", "torchtitan"},
           {"MCore", "Megatron-Core"},
           {"mcore v0.12", "Megatron-Core 0.1"},
           {"NeMo container 24.07", "NeMo 24.07"},
           {"NVIDIA NeMo Framework 24.05", "NeMo 24.05"},
           {"Sailor fork of Megatron-DeepSpeed", "Megatron-DeepSpeed (Sailor fork)"}}) {
    const RowFramework framework = framework_of(row_of({{"framework", name}}));
    EXPECT_FALSE(framework.stands_in) << name;
    EXPECT_EQ(framework.facts.name, known);
  }
}

// torchtitan logs tokens a second of a device; fairseq's words are those of all.
TEST(FrameworkNames, RatesThatSayNotOfWhat) {
  const auto metric = [](const std::string& name, const std::string& framework) {
    return row_of({{"measured_metric", name}, {"framework", framework}}).metric;
  };
  EXPECT_EQ(metric("tps", "torchtitan"), "tokens_per_s_per_gpu");
  EXPECT_EQ(metric("wps", "torchtitan (FSDP2)"), "tokens_per_s_per_gpu");
  EXPECT_EQ(metric("wps", "metaseq"), "tokens_per_s");
  EXPECT_NE(row_of({{"measured_metric", "tps"}}).unknown, "");
}

// What ranks of tensors share a sequence by, as frameworks call it; and stages of ZeRO.
TEST(FrameworkNames, OfSequenceParallelism) {
  EXPECT_EQ(row_of({{"zero_stage", "no ZeRO"}}).zero_stage, 0);
  EXPECT_EQ(row_of({{"zero_stage", "yes (dist. opt.)"}}).zero_stage, 1);
  for (const char* tensors : {"split_gather", "enabled with TP", "Megatron-style", "TP-SP"}) {
    EXPECT_EQ(row_of({{"sequence_parallel", tensors}}).sequence_parallel, true) << tensors;
  }
  for (const char* none : {"no SP", "off with TP", "no, TP 1"}) {
    EXPECT_EQ(row_of({{"sequence_parallel", none}}).sequence_parallel, false) << none;
  }
  EXPECT_ANY_THROW(row_of({{"sequence_parallel", "TP only, no SP"}}));
}

}  // namespace
}  // namespace orrery::studies
