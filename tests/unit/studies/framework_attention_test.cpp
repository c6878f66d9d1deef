// SPDX-License-Identifier: Apache-2.0
// Whose attention kernel a row runs: what its cell states, else its framework's on its GPU.
#include <gtest/gtest.h>

#include <string>

#include "tests/unit/studies/testing.hpp"

namespace orrery::studies {
namespace {

using testing::Changes;
using testing::execution_of;

Changes run_of(const std::string& framework, const std::string& gpu, const std::string& attention,
               const std::string& year = "2024") {
  return {{"framework", framework}, {"gpu", gpu}, {"attention_impl", attention}, {"year", year}};
}

// 0: the GPU's best, cuDNN's from Hopper on.
int version(const Changes& row) { return execution_of(row).flash_version; }
bool copies(const Changes& row) { return execution_of(row).attention_copies; }

constexpr const char* kHopper = "H100-80GB-SXM";
constexpr const char* kAmpere = "A100-80GB-SXM";

TEST(FrameworkAttention, TheLauncherOfNemoTurnsCudnnOff) {
  for (const char* release : {"NeMo/Megatron-Core launcher (2024)", "NeMo/Megatron-Core 24.03.01",
                              "NeMo/Megatron-Core 24.07", "NeMo 24.05"}) {
    EXPECT_EQ(version(run_of(release, kHopper, "flash (TE)")), 2) << release;
    EXPECT_TRUE(copies(run_of(release, kHopper, "flash (TE)"))) << release;
  }
  for (const char* later : {"NeMo/Megatron-Core 24.09", "NeMo 24.09"}) {
    EXPECT_EQ(version(run_of(later, kHopper, "flash (TE)")), 0) << later;
    EXPECT_FALSE(copies(run_of(later, kHopper, "flash (TE)"))) << later;
  }
}

TEST(FrameworkAttention, AStatedKernelWins) {
  const std::string launcher = "NeMo/Megatron-Core 24.07";
  EXPECT_EQ(version(run_of(launcher, kHopper, "cuDNN")), 0);
  EXPECT_FALSE(copies(run_of(launcher, kHopper, "cuDNN")));
  EXPECT_EQ(version(run_of("NeMo/Megatron-Core 25.04", kHopper, "FlashAttention-2")), 2);
  EXPECT_TRUE(copies(run_of("NeMo/Megatron-Core 25.04", kHopper, "FlashAttention-2")));
  EXPECT_EQ(version(run_of("PyTorch FSDP", kHopper, "FlashAttention-3")), 0);
}

TEST(FrameworkAttention, TransformerEngineChoosesByGpuAndYear) {
  for (const char* name : {"Megatron-LM core_v0.12.0", "Megatron-Bridge 25.11", "NeMo 25.02"}) {
    EXPECT_EQ(version(run_of(name, kHopper, "flash")), 0) << name;
    EXPECT_FALSE(copies(run_of(name, "B200-180GB-SXM", ""))) << name;
    EXPECT_EQ(version(run_of(name, kAmpere, "flash")), 2) << name;
    EXPECT_TRUE(copies(run_of(name, kAmpere, "flash"))) << name;
  }
  EXPECT_EQ(version(run_of("Megatron-LM core_v0.4.0", kHopper, "flash", "2023")), 2);
}

TEST(FrameworkAttention, RecipesOfGemmaTurnCudnnOff) {
  Changes row = run_of("NeMo 24.12", kHopper, "");
  EXPECT_EQ(version(row), 0);
  row["model_name"] = "gemma-7b";
  EXPECT_EQ(version(row), 2);
  row["framework"] = "NeMo 25.02";
  EXPECT_EQ(version(row), 0);
}

TEST(FrameworkAttention, SomeRecipesOfTheDgxCloudSetTurnCudnnOff) {
  const auto version_of = [](const std::string& network, const std::string& release) {
    Changes row = run_of("NeMo/Megatron-Core", kHopper, "flash (TE)", "2025");
    row["model_name"] = network;
    row["source"] = "NVIDIA DGX Cloud Benchmarking recipes " + release;
    return version(row);
  };
  EXPECT_EQ(version_of("grok1-314b", "25.03"), 2);
  EXPECT_EQ(version_of("grok1-proxy-4L", "25.03"), 2);
  EXPECT_EQ(version_of("nemotron4-340b", "25.03"), 2);
  EXPECT_EQ(version_of("nemotron4-15b", "25.03"), 0);
  EXPECT_EQ(version_of("llama3.1-405b", "25.03"), 0);
  EXPECT_EQ(version_of("nemotron4-340b", "25.05"), 0);
}

TEST(FrameworkAttention, LocalLayersCallThePackage) {
  for (const char* name : {"Megatron-LM", "Megatron-DeepSpeed", "DeepSpeed ZeRO-3"}) {
    EXPECT_EQ(version(run_of(name, kHopper, "flash")), 2) << name;
    EXPECT_EQ(version(run_of(name, kAmpere, "flash", "2022")), 1) << name;  // before version 2
  }
}

TEST(FrameworkAttention, CudnnAndTransformerEngineAreTheBestKernel) {
  for (const char* words : {"cuDNN SDPA", "cuDNN fused attention (TE)", "TE"}) {
    for (const char* name : {"PyTorch FSDP", "torchtitan (FSDP2)", "Composer", "InternEvo"}) {
      EXPECT_EQ(version(run_of(name, kHopper, words)), 0) << name << ": " << words;
    }
  }
  EXPECT_EQ(version(run_of("PyTorch FSDP", kHopper, "FA2 (not cuDNN)")), 2);
  EXPECT_EQ(version(run_of("PyTorch FSDP", kHopper, "cuDNN (not FA2)")), 0);
}

TEST(FrameworkAttention, FrameworksChangedTheirKernels) {
  EXPECT_EQ(version(run_of("torchtitan", "B200-180GB-SXM", "flash (SDPA)", "2025")), 0);
  EXPECT_EQ(version(run_of("torchtitan", kHopper, "flash (SDPA)", "2025")), 2);
  EXPECT_EQ(version(run_of("torchtitan", kHopper, "flash (SDPA)", "2026")), 0);
  EXPECT_EQ(version(run_of("Composer", kAmpere, "flash", "2023")), 1);
  EXPECT_EQ(version(run_of("Composer", kAmpere, "flash", "2024")), 2);
  EXPECT_EQ(version(run_of("InternEvo", kAmpere, "flash", "2024")), 1);
  EXPECT_EQ(version(run_of("InternEvo v0.3.1", kAmpere, "flash", "2024")), 2);
  EXPECT_EQ(version(run_of("InternEvo", kAmpere, "flash", "2025")), 2);
}

TEST(FrameworkAttention, T5xRunsProductsAndSoftmax) {
  const auto fused = [](const std::string& attention) {
    return execution_of(run_of("T5X (JAX/XLA)", kAmpere, attention)).fused_attention;
  };
  EXPECT_FALSE(fused(""));
  EXPECT_TRUE(fused("flash (TE)"));
  EXPECT_TRUE(execution_of(run_of("MaxText", kAmpere, "")).fused_attention);
}

}  // namespace
}  // namespace orrery::studies
