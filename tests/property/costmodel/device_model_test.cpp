// SPDX-License-Identifier: Apache-2.0
// Operator times never beat the datasheet and never rise with faster hardware. The formulas are
// monotone in work as well; measured kernels are not (a full last wave beats a ragged one), so with
// residuals more work saves at most the square of their largest factor.
#include "costmodel/device_model.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <array>

namespace orrery::costmodel {
namespace {

constexpr double kAboveRounding = 1 + 1e-9;
const std::array<const char*, 6> kGpus = {"v100-sxm2-32gb", "a100-sxm4-80gb", "h100-sxm5-80gb",
                                          "b200-sxm-180gb", "l40s",           "mi300x"};

DeviceModel model_of(const topologies::Gpu& gpu) { return {gpu, load_profile("", gpu)}; }

DeviceModel formulas_of(const topologies::Gpu& gpu) {
  Profile profile = load_profile("", gpu);
  profile.kernels = {};
  return {gpu, profile};
}

// What measured factors can save at most.
constexpr double kSaving = KernelResiduals::kMaxFactor * KernelResiduals::kMaxFactor;

topologies::Gpu any_gpu() {
  return topologies::load_gpu(kGpus[*rc::gen::inRange<std::size_t>(0, kGpus.size())]);
}

std::int64_t size_up_to(std::int64_t limit) {
  // Log-uniform, so that small and ragged sizes are as frequent as large ones.
  const int bits = *rc::gen::inRange(0, 17);
  return std::min(limit, *rc::gen::inRange<std::int64_t>(1, 2 + (std::int64_t{1} << bits)));
}

GemmShape any_gemm() {
  return {.m = size_up_to(1 << 16),
          .n = size_up_to(1 << 16),
          .k = size_up_to(1 << 16),
          .groups = *rc::gen::element<std::int64_t>(1, 1, 2, 8, 64),
          .dtype = DType::Fp16,
          .output_bytes = *rc::gen::element(2, 4),
          .layout = *rc::gen::element(GemmLayout::TN, GemmLayout::NN, GemmLayout::NT)};
}

AttentionShape any_attention() {
  const std::int64_t q = size_up_to(1 << 15);
  return {.batch = *rc::gen::inRange<std::int64_t>(1, 9),
          .heads = *rc::gen::inRange<std::int64_t>(1, 65),
          .kv_heads = 1,
          .q_len = q,
          .kv_len = *rc::gen::element(q, 2 * q, size_up_to(1 << 15)),
          .head_dim = *rc::gen::element<std::int64_t>(64, 128, 192),
          .value_head_dim = 128,
          .causal = *rc::gen::arbitrary<bool>(),
          .window = *rc::gen::element<std::int64_t>(0, 0, 128, 1000),
          .dtype = DType::Fp16};
}

topologies::Gpu faster(topologies::Gpu gpu) {
  const double flops = *rc::gen::element(1.0, 1.01, 2.0, 100.0);
  const double bytes = *rc::gen::element(1.0, 1.01, 2.0, 100.0);
  for (FlopsPerSecond& rate : gpu.peak) {
    rate *= flops;
  }
  gpu.hbm_bandwidth *= bytes;
  return gpu;
}

TEST(DeviceModelProperty, GemmNeverBeatsTheDatasheet) {
  EXPECT_TRUE(rc::check([] {
    const topologies::Gpu gpu = any_gpu();
    const GemmShape shape = any_gemm();
    const double m = static_cast<double>(shape.m);
    const double n = static_cast<double>(shape.n);
    const double k = static_cast<double>(shape.k);
    const double groups = static_cast<double>(shape.groups);
    const double compute = 2 * m * n * k * groups / gpu.peak_of(shape.dtype).value();
    const double memory =
        groups * (2 * (m * k + k * n) + shape.output_bytes * m * n) / gpu.hbm_bandwidth.value();
    RC_ASSERT(model_of(gpu).gemm(shape).value() * kAboveRounding >= std::max(compute, memory));
    const DeviceModel sustained(gpu, load_profile("", gpu), Load::Sustained);
    RC_ASSERT(sustained.gemm(shape).value() * kAboveRounding >= std::max(compute, memory));
  }));
}

TEST(DeviceModelProperty, GemmIsMonotoneInEverySize) {
  EXPECT_TRUE(rc::check([] {
    const topologies::Gpu gpu = any_gpu();
    const DeviceModel model = formulas_of(gpu);
    const DeviceModel measured = model_of(gpu);
    const GemmShape shape = any_gemm();
    GemmShape larger = shape;
    larger.m += *rc::gen::inRange(0, 300);
    larger.n += *rc::gen::inRange(0, 300);
    larger.k += *rc::gen::inRange(0, 300);
    RC_ASSERT(model.gemm(larger).value() * kAboveRounding >= model.gemm(shape).value());
    RC_ASSERT(kSaving * measured.gemm(larger).value() >= measured.gemm(shape).value());
    if (shape.groups > 1) {
      larger.groups += *rc::gen::inRange(0, 5);
      RC_ASSERT(model.gemm(larger).value() * kAboveRounding >= model.gemm(shape).value());
    }
  }));
}

TEST(DeviceModelProperty, FasterHardwareIsNeverSlower) {
  EXPECT_TRUE(rc::check([] {
    const topologies::Gpu gpu = any_gpu();
    const DeviceModel model = model_of(gpu);
    const DeviceModel better = model_of(faster(gpu));
    const GemmShape gemm = any_gemm();
    const AttentionShape attention = any_attention();
    RC_ASSERT(better.gemm(gemm).value() <= model.gemm(gemm).value() * kAboveRounding);
    RC_ASSERT(better.attention_forward(attention).value() <=
              model.attention_forward(attention).value() * kAboveRounding);
    RC_ASSERT(better.attention_backward(attention).value() <=
              model.attention_backward(attention).value() * kAboveRounding);
    const Bytes bytes(*rc::gen::inRange(1, 1 << 30));
    RC_ASSERT(better.memory_bound(bytes, MemoryKernel::Norm) <=
              model.memory_bound(bytes, MemoryKernel::Norm));
  }));
}

TEST(DeviceModelProperty, AttentionIsMonotoneInWork) {
  EXPECT_TRUE(rc::check([] {
    const DeviceModel model = formulas_of(any_gpu());
    const AttentionShape shape = any_attention();
    AttentionShape larger = shape;
    larger.batch += *rc::gen::inRange(0, 3);
    larger.heads += *rc::gen::inRange(0, 9);
    // Causal rows are aligned at the end: the queries grow together with the keys.
    const std::int64_t longer = *rc::gen::inRange<std::int64_t>(0, 300);
    larger.q_len += longer;
    larger.kv_len += longer;
    if (shape.window > 0) {
      larger.window += *rc::gen::inRange<std::int64_t>(0, 100);
    }
    RC_ASSERT(model.attention_forward(larger).value() * kAboveRounding >=
              model.attention_forward(shape).value());
    RC_ASSERT(model.attention_backward(larger).value() * kAboveRounding >=
              model.attention_backward(shape).value());
    RC_ASSERT(model.attention_backward(shape) >= model.attention_forward(shape));
  }));
}

TEST(DeviceModelProperty, MemoryKernelsAndCopiesAreLinearWithAFloor) {
  EXPECT_TRUE(rc::check([] {
    const topologies::Gpu gpu = any_gpu();
    const DeviceModel model = model_of(gpu);
    const auto kernel = static_cast<MemoryKernel>(*rc::gen::inRange(0, kNumMemoryKernels));
    const Bytes bytes(*rc::gen::inRange(1, 1 << 30));
    const Bytes more = bytes + Bytes(*rc::gen::inRange(0, 1 << 30));
    RC_ASSERT(model.memory_bound(more, kernel) >= model.memory_bound(bytes, kernel));
    RC_ASSERT(model.memory_bound(bytes, kernel) >= bytes / gpu.hbm_bandwidth);
    const BytesPerSecond link(25e9);
    RC_ASSERT(model.host_copy(more, link) >= model.host_copy(bytes, link));
    RC_ASSERT(model.host_copy(bytes, link) >= bytes / link);
  }));
}

}  // namespace
}  // namespace orrery::costmodel
