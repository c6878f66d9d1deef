// SPDX-License-Identifier: Apache-2.0
// Softmax over rows (unfused attention, routers), and the cross-entropy over a vocabulary: forward
// with one pass over the logits (running maximum and sum), backward that turns them into gradients.
#include <memory>

#include "calibrate/cuda/benchmark.hpp"
#include "calibrate/cuda/kernels.cuh"
#include "calibrate/cuda/softmax.hpp"

namespace orrery::calibrate::cuda {
namespace {

// Maximum and sum of exponentials of a row, known to all threads.
__device__ float2 row_statistics(const __nv_bfloat16* row, int packs) {
  float largest = -INFINITY;
  float sum = 0;
  float values[kLanes];
  for (int pack = static_cast<int>(threadIdx.x); pack < packs; pack += kThreads) {
    load(row, pack, values);
    float top = largest;
    for (const float value : values) {
      top = fmaxf(top, value);
    }
    sum *= __expf(largest - top);
    largest = top;
    for (const float value : values) {
      sum += __expf(value - largest);
    }
  }
  const float top = block_max(largest);
  return {top, block_sum(largest == -INFINITY ? 0 : sum * __expf(largest - top))};
}

__global__ void softmax_forward(const __nv_bfloat16* x, __nv_bfloat16* y, int columns) {
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * columns;
  const int packs = columns / kLanes;
  const float2 row = row_statistics(x + begin, packs);
  float values[kLanes];
  for (int pack = static_cast<int>(threadIdx.x); pack < packs; pack += kThreads) {
    load(x + begin, pack, values);
    for (float& value : values) {
      value = __expf(value - row.x) / row.y;
    }
    store(y + begin, pack, values);
  }
}

__global__ void softmax_backward(const __nv_bfloat16* y, const __nv_bfloat16* dy, __nv_bfloat16* dx,
                                 int columns) {
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * columns;
  const int packs = columns / kLanes;
  float a[kLanes];
  float b[kLanes];
  float dot = 0;
  for (int pack = static_cast<int>(threadIdx.x); pack < packs; pack += kThreads) {
    load(y + begin, pack, a);
    load(dy + begin, pack, b);
    for (int i = 0; i < kLanes; ++i) {
      dot += a[i] * b[i];
    }
  }
  dot = block_sum(dot);
  for (int pack = static_cast<int>(threadIdx.x); pack < packs; pack += kThreads) {
    load(y + begin, pack, a);
    load(dy + begin, pack, b);
    for (int i = 0; i < kLanes; ++i) {
      a[i] *= b[i] - dot;
    }
    store(dx + begin, pack, a);
  }
}

__global__ void cross_entropy_forward(const __nv_bfloat16* logits, float* loss, float2* rows,
                                      int columns) {
  const __nv_bfloat16* row = logits + static_cast<std::int64_t>(blockIdx.x) * columns;
  const float2 statistics = row_statistics(row, columns / kLanes);
  if (threadIdx.x == 0) {
    const int label = static_cast<int>(blockIdx.x * 7919ULL % static_cast<unsigned>(columns));
    rows[blockIdx.x] = statistics;
    loss[blockIdx.x] = statistics.x + __logf(statistics.y) - __bfloat162float(row[label]);
  }
}

__global__ void cross_entropy_backward(const __nv_bfloat16* logits, const float2* rows,
                                       __nv_bfloat16* gradient, int columns) {
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * columns;
  const float2 row = rows[blockIdx.x];
  const int label = static_cast<int>(blockIdx.x * 7919ULL % static_cast<unsigned>(columns));
  float values[kLanes];
  for (int pack = static_cast<int>(threadIdx.x); pack < columns / kLanes; pack += kThreads) {
    load(logits + begin, pack, values);
    for (int i = 0; i < kLanes; ++i) {
      values[i] = __expf(values[i] - row.x) / row.y - (pack * kLanes + i == label ? 1.0F : 0.0F);
    }
    store(gradient + begin, pack, values);
  }
}

struct SoftmaxOperands {
  SoftmaxOperands(std::int64_t num_rows, int width, bool second, bool written)
      : rows(static_cast<unsigned>(num_rows)),
        columns(width),
        x(bf16_buffer(num_rows * width, 1)),
        x2(bf16_buffer(second ? num_rows * width : 1, 2)),
        y(bf16_buffer(written ? num_rows * width : 1, 3)),
        statistics(random_buffer(2 * static_cast<std::size_t>(num_rows), DType::Fp32, 4)),
        loss(random_buffer(static_cast<std::size_t>(num_rows), DType::Fp32, 5)) {}
  unsigned rows;
  int columns;
  DeviceBuffer x;
  DeviceBuffer x2;
  DeviceBuffer y;
  DeviceBuffer statistics;
  DeviceBuffer loss;
};

void enqueue(const SoftmaxOperands& o, bool vocabulary, bool backward, Stream stream) {
  auto* x = o.x.as<__nv_bfloat16>();
  auto* y = o.y.as<__nv_bfloat16>();
  if (vocabulary && backward) {
    cross_entropy_backward<<<o.rows, kThreads, 0, stream>>>(x, o.statistics.as<float2>(), y,
                                                            o.columns);
  } else if (vocabulary) {
    cross_entropy_forward<<<o.rows, kThreads, 0, stream>>>(x, o.loss.as<float>(),
                                                           o.statistics.as<float2>(), o.columns);
  } else if (backward) {
    softmax_backward<<<o.rows, kThreads, 0, stream>>>(x, o.x2.as<__nv_bfloat16>(), y, o.columns);
  } else {
    softmax_forward<<<o.rows, kThreads, 0, stream>>>(x, y, o.columns);
  }
  check_launch("softmax");
}

void add_softmax(std::vector<Case>& cases, std::int64_t bytes, int columns, bool vocabulary,
                 bool backward) {
  const std::int64_t rows = bytes / (2 * columns);
  if (rows == 0) {
    return;
  }
  const std::int64_t moved = rows * columns * 2;
  const bool second = !vocabulary && backward;
  const bool written = !vocabulary || backward;
  MemorySample shape = memory_sample(vocabulary ? "cross_entropy" : "softmax",
                                     vocabulary ? "cross-entropy" : "softmax",
                                     second ? 2 * moved : moved, written ? moved : 0, backward);
  shape.rows = rows;
  shape.columns = columns;
  cases.push_back(memory_case(shape, [=] {
    const auto operands = std::make_shared<SoftmaxOperands>(rows, columns, second, written);
    return Launch{
        .enqueue = [=](Stream stream) { enqueue(*operands, vocabulary, backward, stream); }};
  }));
}

std::vector<Case> softmax_cases(const BenchmarkContext&) {
  std::vector<Case> cases;
  for (const std::int64_t bytes : memory_sizes()) {
    for (const bool backward : {false, true}) {
      add_softmax(cases, bytes, 2048, false, backward);
      add_softmax(cases, bytes, 51'200, true, backward);
      add_softmax(cases, bytes, 128'256, true, backward);
    }
  }
  return cases;
}

}  // namespace

void enqueue_softmax(const DeviceBuffer& x, const DeviceBuffer& y, std::int64_t rows, int columns,
                     Stream stream) {
  softmax_forward<<<static_cast<unsigned>(rows), kThreads, 0, stream>>>(
      x.as<__nv_bfloat16>(), y.as<__nv_bfloat16>(), columns);
  check_launch("softmax");
}

void enqueue_softmax_backward(const DeviceBuffer& y, const DeviceBuffer& dy, const DeviceBuffer& dx,
                              std::int64_t rows, int columns, Stream stream) {
  softmax_backward<<<static_cast<unsigned>(rows), kThreads, 0, stream>>>(
      y.as<__nv_bfloat16>(), dy.as<__nv_bfloat16>(), dx.as<__nv_bfloat16>(), columns);
  check_launch("softmax backward");
}

extern const Benchmark benchmark_softmax;
const Benchmark benchmark_softmax = {"softmax", "softmax and cross-entropy, forward and backward",
                                     0.5, softmax_cases};

}  // namespace orrery::calibrate::cuda
