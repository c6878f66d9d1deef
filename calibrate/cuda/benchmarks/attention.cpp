// SPDX-License-Identifier: Apache-2.0
// Attention, forward and backward: the fused kernels of cuDNN, or, where it is missing, the plain
// sequence of batched products and softmax over stored scores. The sample says which.
#include <algorithm>
#include <memory>

#include "calibrate/cuda/benchmark.hpp"
#include "calibrate/cuda/lt_gemm.hpp"
#include "calibrate/cuda/softmax.hpp"
#ifdef ORRERY_HAS_CUDNN
#include "calibrate/cuda/cudnn_attention.hpp"
#include "calibrate/cuda/cudnn_graph.hpp"
#endif

namespace orrery::calibrate::cuda {
namespace {

// A causal mask saves nothing here: all scores are computed.
class UnfusedAttention {
 public:
  explicit UnfusedAttention(const AttentionSample& shape)
      : backward_(shape.backward),
        rows_(shape.batch * shape.heads * shape.q_len),
        columns_(static_cast<int>(shape.kv_len)) {
    if (shape.dtype != DType::Bf16 || shape.kv_len % 8 != 0) {
      throw Unsupported("attention", "unfused attention is timed in bf16, keys in multiples of 8");
    }
    const auto product = [&](std::int64_t m, std::int64_t n, std::int64_t k, GemmLayout layout) {
      GemmSample gemm;
      gemm.m = m;
      gemm.n = n;
      gemm.k = k;
      gemm.groups = shape.batch * shape.heads;
      gemm.layout = layout;
      products_.push_back(std::make_unique<LtGemm>(gemm));
    };
    const std::int64_t q = shape.q_len;
    const std::int64_t kv = shape.kv_len;
    if (!shape.backward) {
      product(q, kv, shape.head_dim, GemmLayout::TN);
      product(q, shape.value_head_dim, kv, GemmLayout::NN);
    } else {
      product(kv, shape.value_head_dim, q, GemmLayout::NT);  // values
      product(q, kv, shape.value_head_dim, GemmLayout::TN);  // probabilities
      product(q, shape.head_dim, kv, GemmLayout::NN);        // queries
      product(kv, shape.head_dim, q, GemmLayout::NT);        // keys
    }
    const auto scores = static_cast<std::size_t>(rows_ * columns_);
    probabilities_ = random_buffer(scores, DType::Bf16, 1);
    gradients_ = random_buffer(shape.backward ? scores : 1, DType::Bf16, 2);
    result_ = random_buffer(scores, DType::Bf16, 3);
  }

  void enqueue(Stream stream) const {
    const std::size_t before = backward_ ? 2 : 1;
    for (std::size_t i = 0; i < products_.size(); ++i) {
      if (i == before) {
        enqueue_rows(stream);
      }
      products_[i]->enqueue(stream);
    }
  }

 private:
  void enqueue_rows(Stream stream) const {
    if (backward_) {
      enqueue_softmax_backward(probabilities_, gradients_, result_, rows_, columns_, stream);
    } else {
      enqueue_softmax(probabilities_, result_, rows_, columns_, stream);
    }
  }

  bool backward_;
  std::int64_t rows_;
  int columns_;
  std::vector<std::unique_ptr<LtGemm>> products_;
  DeviceBuffer probabilities_;
  DeviceBuffer gradients_;
  DeviceBuffer result_;
};

template <class Attention>
std::function<Launch()> prepare(const AttentionSample& shape) {
  return [shape] {
    const auto attention = std::make_shared<Attention>(shape);
    return Launch{.enqueue = [attention](Stream stream) { attention->enqueue(stream); }};
  };
}

// Scores of the unfused form: three copies, and the operands of the products.
bool fits_unfused(const AttentionSample& shape, const ShapeLimits& limits) {
  const double scores = 2.0 * static_cast<double>(shape.batch * shape.heads * shape.q_len) *
                        static_cast<double>(shape.kv_len);
  return 7 * scores < limits.max_bytes;
}

std::vector<Case> attention_cases(const BenchmarkContext& context) {
  const DType dtype = context.wants(DType::Bf16) ? DType::Bf16 : DType::Fp16;
  if (!context.wants(dtype)) {
    return {};
  }
  const ShapeLimits limits = context.limits(dtype);
  std::vector<AttentionSample> shapes;
  for (const NetworkRequest& request : context.networks) {
    for (const AttentionSample& shape : network_attention(request)) {
      if (shape.dtype == dtype && std::find(shapes.begin(), shapes.end(), shape) == shapes.end()) {
        shapes.push_back(shape);
      }
    }
  }
  for (const AttentionSample& shape : usual_attention(dtype, limits)) {
    if (std::find(shapes.begin(), shapes.end(), shape) == shapes.end()) {
      shapes.push_back(shape);
    }
  }
  std::vector<Case> cases;
  for (const AttentionSample& shape : shapes) {
#ifdef ORRERY_HAS_CUDNN
    if (!cudnn_version().empty() && context.device.capability >= 80) {
      cases.push_back(make_case(shape, "cudnn", prepare<CudnnAttention>(shape)));
      continue;
    }
#endif
    if (fits_unfused(shape, limits)) {
      cases.push_back(make_case(shape, "orrery-unfused", prepare<UnfusedAttention>(shape)));
    }
  }
  return cases;
}

}  // namespace

extern const Benchmark benchmark_attention;
const Benchmark benchmark_attention = {
    "attention", "attention forward and backward (cuDNN, else unfused)", 1.0, attention_cases};

}  // namespace orrery::calibrate::cuda
