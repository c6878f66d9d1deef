// SPDX-License-Identifier: Apache-2.0
// What NeMo's recipes keep in 16 and in 8 bits.
#include <gtest/gtest.h>

#include "studies/rows/row_plan.hpp"
#include "tests/unit/studies/testing.hpp"

namespace orrery::studies {
namespace {

using testing::Changes;
using testing::row_of;

plan::Execution execution(const Changes& changes) {
  const Measurement row = row_of(changes);
  return row_execution(row, *find_framework(row.framework));
}

TEST(NemoRows, GradientsOfFp8AreReducedIn16Bits) {
  const Changes bf16 = {{"framework", "NeMo/Megatron-Core"}};
  Changes fp8 = bf16;
  fp8["precision"] = "fp8";
  EXPECT_TRUE(execution(bf16).fp32_gradients);
  EXPECT_FALSE(execution(fp8).fp32_gradients);
  fp8["framework"] = "NeMo/Megatron-Core 24.07";  // distributed_fused_adam, fp32
  EXPECT_TRUE(execution(fp8).fp32_gradients);
}

TEST(NemoRows, TheOlderDgxCloudRecipesDoSoInBf16Too) {
  Changes older = {{"framework", "NeMo/Megatron-Core"},
                   {"source", "NVIDIA DGX Cloud Benchmarking recipes 25.03"}};
  EXPECT_FALSE(execution(older).fp32_gradients);
  older["model_name"] = "nemotron4-15b";
  EXPECT_TRUE(execution(older).fp32_gradients);
  older["model_name"] = "nemotron4-340b";
  EXPECT_FALSE(execution(older).fp32_gradients);
  older["source"] = "NVIDIA DGX Cloud Benchmarking recipes 25.05";
  EXPECT_FALSE(execution(older).fp32_gradients);
}

TEST(NemoRows, TwoOfTheOlderDgxCloudRecipesLeaveTheLossInPasses) {
  Changes row = {{"framework", "NeMo/Megatron-Core"},
                 {"source", "NVIDIA DGX Cloud Benchmarking recipes 25.03"}};
  for (const char* network : {"grok1-314b", "grok1-proxy-4L", "gpt3-175b"}) {
    row["model_name"] = network;
    EXPECT_FALSE(execution(row).compiled_loss) << network;
    EXPECT_FALSE(execution(row).fp32_gradients) << network;
  }
  row["model_name"] = "nemotron4-340b";
  EXPECT_TRUE(execution(row).compiled_loss);
  row["model_name"] = "gpt3-175b";
  row["source"] = "NVIDIA DGX Cloud Benchmarking recipes 25.05";
  EXPECT_TRUE(execution(row).compiled_loss);
}

TEST(NemoRows, Fp8ParametersAreGatheredIn8Bits) {
  const auto gathers = [](const std::string& framework, const std::string& precision) {
    return execution({{"framework", framework}, {"precision", precision}}).quantised_gather;
  };
  EXPECT_TRUE(gathers("NeMo/Megatron-Core", "fp8"));
  EXPECT_TRUE(gathers("Megatron-Bridge 26.02", "fp8"));
  EXPECT_FALSE(gathers("NeMo/Megatron-Core", "bf16"));
  EXPECT_FALSE(gathers("torchtitan (FSDP2)", "fp8"));
}

// Megatron-Core 0.10 and later, where ep is a multiple of cp.
TEST(NemoRows, ExpertsAreSpreadOverContextRanks) {
  const auto layout = [](const std::string& framework, const std::string& ep) {
    const Changes row = {{"framework", framework},
                         {"model_family", "llama"},
                         {"experts", "8"},
                         {"top_k", "2"},
                         {"moe_ffn_hidden", "1024"},
                         {"tp", "1"},
                         {"pp", "1"},
                         {"cp", "2"},
                         {"dp", "4"},
                         {"ep", ep}};
    return row_plan(row_of(row)).value().layout_of(1);
  };
  EXPECT_EQ(layout("NeMo/Megatron-Core", "8").expert_cp, 1);
  EXPECT_EQ(layout("NeMo/Megatron-Core", "4").expert_cp, 1);
  EXPECT_EQ(layout("NeMo/Megatron-Core", "1").expert_cp, 0);
  EXPECT_EQ(layout("Megatron-LM", "4").expert_cp, 0);
}

}  // namespace
}  // namespace orrery::studies
