// SPDX-License-Identifier: Apache-2.0
// What is taken over from the table of one chip must not carry that chip's own limits along: L40S
// computes at the share of its peak that 350 W feed, other Ada chips do not.
#include <gtest/gtest.h>

#include "costmodel/device_model.hpp"
#include "tests/unit/costmodel/shapes.hpp"

namespace orrery::costmodel {
namespace {

double teraflops(const topologies::Gpu& gpu, const Profile& profile, DType dtype) {
  const DeviceModel model(gpu, profile, Load::Sustained);
  return 2 * 8192.0 * 8192 * 8192 /
         model.gemm({.m = 8192, .n = 8192, .k = 8192, .dtype = dtype}).value() / 1e12;
}

// chsasank/device-benchmarks: 150 TFLOP/s in fp16 and 168 in bf16, of 165.2.
TEST(TransferredKernels, ConsumerAdaReachesWhatItWasMeasuredAt) {
  const topologies::Gpu gpu = topologies::load_gpu("rtx-4090");
  const Profile profile = load_profile("", gpu);
  EXPECT_NEAR(teraflops(gpu, profile, DType::Fp16), 150, 5);
  EXPECT_NEAR(teraflops(gpu, profile, DType::Bf16), 150, 5);
}

TEST(TransferredKernels, TheDefaultOfAdaStillDescribesL40SByItsPower) {
  const topologies::Gpu gpu = topologies::load_gpu("l40s");
  const auto share_of_own = [&](DType dtype) {
    return teraflops(gpu, load_profile("default-ada", gpu), dtype) /
           teraflops(gpu, load_profile("", gpu), dtype);
  };
  EXPECT_NEAR(share_of_own(DType::Bf16), 1, 0.15);
  EXPECT_NEAR(share_of_own(DType::Fp8), 1, 0.2);
}

// 450 W feed a 4090 in 8 bits, too, whose tensor cores are half of the L40S's.
TEST(TransferredKernels, FewerBitsAreFasterWherePowerDoesNotBind) {
  const topologies::Gpu gpu = topologies::load_gpu("rtx-4090");
  const Profile profile = load_profile("", gpu);
  const double sixteen = teraflops(gpu, profile, DType::Bf16);
  EXPECT_GT(teraflops(gpu, profile, DType::Fp8), 1.6 * sixteen);
  EXPECT_LT(teraflops(gpu, profile, DType::Fp8), 2.0 * sixteen);
}

// Attention loses the last waves and kernels share the chip with NCCL by the number of its SMs; a
// chip without one would be spared both.
TEST(TransferredKernels, ChipsOfNvidiaStateTheirMultiprocessors) {
  for (const std::string& name : topologies::gpu_names()) {
    const topologies::Gpu gpu = topologies::load_gpu(name);
    if (gpu.vendor == "NVIDIA") {
      EXPECT_GT(gpu.sm_count, 0) << name;
      EXPECT_LT(DeviceModel(gpu, load_profile("", gpu)).overlap_speed_fraction(), 1) << name;
    }
  }
}

// The same chip with more memory and power: 1024 tokens of 8 heads take B200 longer than the launch
// of three kernels, and B300 cannot do them in a quarter of that.
TEST(TransferredKernels, SmallAttentionOfB300IsThatOfB200) {
  const AttentionShape shape = causal_attention(1, 8, 1, 1024);
  const auto time_on = [&](const char* name) {
    const topologies::Gpu gpu = topologies::load_gpu(name);
    return DeviceModel(gpu, load_profile("", gpu), Load::Sustained).attention_forward(shape);
  };
  EXPECT_NEAR(time_on("b300-sxm-288gb") / time_on("b200-sxm-180gb"), 1, 0.1);
}

}  // namespace
}  // namespace orrery::costmodel
