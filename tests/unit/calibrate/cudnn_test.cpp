// SPDX-License-Identifier: Apache-2.0
// cuDNN checks shapes, strides and types of every operation when it is described; that needs the
// library, but no device. Neither do lists of cases.
#include <gtest/gtest.h>

#include <map>

#ifdef ORRERY_HAS_CUDNN
#include "calibrate/cuda/benchmark.hpp"
#include "calibrate/cuda/cudnn_attention.hpp"

namespace orrery::calibrate::cuda {
namespace {

AttentionSample shape_of(std::int64_t kv_heads, bool causal, bool backward) {
  AttentionSample shape;
  shape.batch = 2;
  shape.heads = 8;
  shape.kv_heads = kv_heads;
  shape.q_len = 1024;
  shape.kv_len = 1024;
  shape.head_dim = 128;
  shape.value_head_dim = 128;
  shape.causal = causal;
  shape.backward = backward;
  return shape;
}

TEST(CudnnAttention, EveryOperationIsWellFormed) {
  if (cudnn_version().empty()) {
    GTEST_SKIP() << "cuDNN is missing";
  }
  alignas(16) static char memory[16];
  for (const std::int64_t kv_heads : {8, 2}) {
    for (const bool causal : {false, true}) {
      for (const bool backward : {false, true}) {
        AttentionSample shape = shape_of(kv_heads, causal, backward);
        for (const std::int64_t window : {0, 256}) {
          shape.window = causal ? window : 0;
          CudnnGraph graph;
          int operands = 0;
          EXPECT_NO_THROW(describe_attention(graph, shape, [&](std::size_t, DType) {
            ++operands;
            return static_cast<void*>(memory);
          }));
          // q, k, v, out, statistics; backward: also four gradients, row sums, fp32 queries.
          EXPECT_EQ(operands, backward ? 11 : 5);
        }
      }
    }
  }
}

TEST(CudnnAttention, OtherTypesAreUnsupported) {
  AttentionSample shape = shape_of(8, true, false);
  shape.dtype = DType::Fp32;
  CudnnGraph graph;
  EXPECT_THROW(describe_attention(graph, shape, {}), Unsupported);
}

// Hopper multiplies fp8 in one layout: the gradients run on transposed copies, whose cast is timed
// apart. Blackwell multiplies in all three.
TEST(CudaBenchmarks, GradientsInFp8RunWhereTheLibraryHasTheirLayout) {
  const auto cases_of = [](int capability) {
    BenchmarkContext context;
    context.device.capability = capability;
    context.dtypes = {DType::Fp8};
    context.limits = [](DType) { return ShapeLimits{}; };
    std::map<std::string_view, std::map<GemmLayout, int>> counts;
    for (const Benchmark* benchmark : benchmark_table()) {
      for (const Case& item : benchmark->cases(context)) {
        if (const auto* gemm = std::get_if<GemmSample>(&item.shape); gemm && gemm->groups == 1) {
          ++counts[benchmark->name][gemm->layout];
        } else if (benchmark->name == "cast-transpose") {
          ++counts[benchmark->name][GemmLayout::TN];
        }
      }
    }
    return counts;
  };
  auto hopper = cases_of(90);
  EXPECT_EQ(hopper["gemm"].size(), 1U);
  EXPECT_GE(hopper["gemm-transposed"][GemmLayout::NN], 40);
  EXPECT_GE(hopper["gemm-transposed"][GemmLayout::NT], 40);
  EXPECT_EQ(hopper["gemm-transposed"][GemmLayout::TN], 0);
  EXPECT_GE(hopper["cast-transpose"][GemmLayout::TN], 6);
  auto blackwell = cases_of(100);
  EXPECT_EQ(blackwell["gemm"].size(), 3U);
  EXPECT_TRUE(blackwell["gemm-transposed"].empty());
}

}  // namespace
}  // namespace orrery::calibrate::cuda
#endif
