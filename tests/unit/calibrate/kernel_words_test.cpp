// SPDX-License-Identifier: Apache-2.0
#include "calibrate/kernel_words.hpp"

#include <gtest/gtest.h>

#include "calibrate/reading_builder.hpp"

namespace orrery::calibrate {
namespace {

TEST(KernelWords, TransposesAreLettersFlagsOrDigits) {
  for (const char* word : {"T", "t", "True", "1", "Trans"}) {
    EXPECT_EQ(is_transposed(word), std::optional(true)) << word;
  }
  for (const char* word : {"N", "n", "False", "0", "NoTrans"}) {
    EXPECT_EQ(is_transposed(word), std::optional(false)) << word;
  }
  EXPECT_FALSE(is_transposed("x"));
  EXPECT_FALSE(is_transposed(""));
  EXPECT_EQ(layout_of_transposes(true, false), std::optional(GemmLayout::TN));
  EXPECT_FALSE(layout_of_transposes(true, true));
}

TEST(KernelWords, LayoutsAndPassesOfLayers) {
  EXPECT_EQ(gemm_layout("nn"), std::optional(GemmLayout::NN));
  EXPECT_EQ(gemm_layout("N,T"), std::optional(GemmLayout::NT));
  EXPECT_FALSE(gemm_layout("TT"));
  EXPECT_FALSE(gemm_layout(""));
  EXPECT_EQ(layout_of_pass("Forward"), std::optional(GemmLayout::TN));
  EXPECT_EQ(layout_of_pass("dgrad"), std::optional(GemmLayout::NN));
  EXPECT_EQ(layout_of_pass("bwd_grad_act"), std::optional(GemmLayout::NN));
  EXPECT_EQ(layout_of_pass("wgrad"), std::optional(GemmLayout::NT));
  EXPECT_FALSE(layout_of_pass("bwd"));
  EXPECT_TRUE(attention_passes("FWD + BWD")->forward);
  EXPECT_TRUE(attention_passes("backward")->backward);
  EXPECT_FALSE(attention_passes("bwd_dq"));
}

TEST(KernelWords, ProductsNameTheirOperands) {
  EXPECT_EQ(operands_of_product("matmul"), std::optional(DType::Bf16));
  EXPECT_EQ(operands_of_product("group_matmul"), std::optional(DType::Bf16));
  EXPECT_EQ(operands_of_product("FP8_matmul"), std::optional(DType::Fp8));
  EXPECT_EQ(operands_of_product("fp8_e4m3_matmul"), std::optional(DType::Fp8));
  EXPECT_EQ(operands_of_product("matmul_fp16"), std::optional(DType::Fp16));
  EXPECT_EQ(operands_of_product("fp32_matmul"), std::optional(DType::Fp32));
  EXPECT_FALSE(operands_of_product("int8_matmul"));
}

TEST(KernelWords, VersionsOfFlashAttention) {
  for (const char* name :
       {"FlashAttention-2", "FlashAttention2", "FlashAttention 2", "flash_attn 2.5.8",
        "flash-attn v2.7", "FA-2", "FlashAttention v2", "vllm_default_fa2", "flash_attn=2"}) {
    EXPECT_EQ(flash_version(name), std::optional(2)) << name;
  }
  for (const char* name : {"FlashAttention-1", "flash_attn_v1", "FA1", "flash-attn 0.2.8"}) {
    EXPECT_EQ(flash_version(name), std::optional(1)) << name;
  }
  EXPECT_EQ(flash_version("vllm_flash_attn_fa3"), std::optional(3));
  for (const char* name : {"vllm_flash_attn", "flashinfer 0.2", "cuDNN 9", "prefill", ""}) {
    EXPECT_FALSE(flash_version(name)) << name;
  }
}

TEST(KernelWords, KernelsOfAttentionThatAreModelled) {
  EXPECT_EQ(attention_kernel("FA-2", "NVIDIA"), std::optional(2));
  EXPECT_EQ(attention_kernel("sdpa", "NVIDIA"), std::optional(2));
  for (const char* name : {"FA3", "FlashAttention-4", "cuDNN", "te", "vllm_flashinfer", ""}) {
    EXPECT_EQ(attention_kernel(name, "NVIDIA"), std::optional(0)) << name;
  }
  for (const char* name : {"FlashAttention-1", "PyTorch unfused", "flex_attention", "Triton"}) {
    EXPECT_FALSE(attention_kernel(name, "NVIDIA")) << name;
  }
  for (const char* name : {"ck", "aiter", "flash_attn (CK)", "composable_kernel"}) {
    EXPECT_FALSE(attention_kernel(name, "NVIDIA")) << name;
    EXPECT_TRUE(attention_kernel(name, "AMD")) << name;
  }
  EXPECT_EQ(attention_kernel("flash_attn blocks", "NVIDIA"), std::optional(0));  // no word "ck"
}

TEST(KernelWords, CollectivesInTheWordsOfLibraries) {
  for (const char* name :
       {"AllReduce", "all_reduce_perf", "ncclAllReduce", "allreduce_coalesced"}) {
    EXPECT_EQ(foreign_collective(name), sim::CommKind::AllReduce) << name;
  }
  EXPECT_EQ(foreign_collective("all2all"), sim::CommKind::AllToAll);
  EXPECT_EQ(foreign_collective("ncclBcast"), sim::CommKind::Broadcast);
  EXPECT_EQ(foreign_collective("p2p"), sim::CommKind::SendReceive);
  EXPECT_EQ(collective_name("rccl reduce_perf"), "reduce");
  EXPECT_EQ(foreign_collective("reduce"), sim::CommKind::None);
}

}  // namespace
}  // namespace orrery::calibrate
