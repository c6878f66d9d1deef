// SPDX-License-Identifier: Apache-2.0
// cuDNN checks shapes, strides and types of every operation when it is described; that needs the
// library, but no device.
#include <gtest/gtest.h>

#ifdef ORRERY_HAS_CUDNN
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

}  // namespace
}  // namespace orrery::calibrate::cuda
#endif
