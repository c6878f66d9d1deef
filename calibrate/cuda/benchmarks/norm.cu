// SPDX-License-Identifier: Apache-2.0
// RMSNorm and LayerNorm, forward and backward, one block a row. The backward adds the gradients of
// the weights over the rows of a block and then atomically, as fused kernels do in two steps.
#include <memory>

#include "calibrate/cuda/benchmark.hpp"
#include "calibrate/cuda/kernels.cuh"

namespace orrery::calibrate::cuda {
namespace {

constexpr float kEpsilon = 1e-5F;

template <bool kCentred>
__global__ void norm_forward(const __nv_bfloat16* x, const __nv_bfloat16* weight, __nv_bfloat16* y,
                             float* scale, std::int64_t rows, int columns) {
  const int packs = columns / kLanes;
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const __nv_bfloat16* in = x + row * columns;
    float sum = 0;
    float squares = 0;
    float values[kLanes];
    for (int pack = static_cast<int>(threadIdx.x); pack < packs; pack += kThreads) {
      load(in, pack, values);
      for (const float value : values) {
        sum += value;
        squares += value * value;
      }
    }
    const float mean = kCentred ? block_sum(sum) / static_cast<float>(columns) : 0;
    const float inverse =
        rsqrtf(block_sum(squares) / static_cast<float>(columns) - mean * mean + kEpsilon);
    float weights[kLanes];
    for (int pack = static_cast<int>(threadIdx.x); pack < packs; pack += kThreads) {
      load(in, pack, values);  // from the cache
      load(weight, pack, weights);
      for (int i = 0; i < kLanes; ++i) {
        values[i] = (values[i] - mean) * inverse * weights[i];
      }
      store(y + row * columns, pack, values);
    }
    if (threadIdx.x == 0) {
      scale[row] = inverse;
    }
  }
}

template <bool kCentred>
__global__ void norm_backward(const __nv_bfloat16* x, const __nv_bfloat16* weight,
                              const __nv_bfloat16* dy, const float* scale, __nv_bfloat16* dx,
                              float* dweight, std::int64_t rows, int columns) {
  extern __shared__ float gradient[];  // of the weights, over the rows of this block
  for (int i = static_cast<int>(threadIdx.x); i < columns; i += kThreads) {
    gradient[i] = 0;
  }
  const int packs = columns / kLanes;
  float values[kLanes];
  float weights[kLanes];
  float grads[kLanes];
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const float inverse = scale[row];
    float dot = 0;
    float sum = 0;
    for (int pack = static_cast<int>(threadIdx.x); pack < packs; pack += kThreads) {
      load(x + row * columns, pack, values);
      load(dy + row * columns, pack, grads);
      load(weight, pack, weights);
      for (int i = 0; i < kLanes; ++i) {
        dot += grads[i] * weights[i] * values[i] * inverse;
        sum += grads[i] * weights[i];
        gradient[pack * kLanes + i] += grads[i] * values[i] * inverse;
      }
    }
    dot = block_sum(dot) / static_cast<float>(columns);
    sum = kCentred ? block_sum(sum) / static_cast<float>(columns) : 0;
    for (int pack = static_cast<int>(threadIdx.x); pack < packs; pack += kThreads) {
      load(x + row * columns, pack, values);
      load(dy + row * columns, pack, grads);
      load(weight, pack, weights);
      for (int i = 0; i < kLanes; ++i) {
        values[i] = inverse * (grads[i] * weights[i] - sum - values[i] * inverse * dot);
      }
      store(dx + row * columns, pack, values);
    }
  }
  for (int i = static_cast<int>(threadIdx.x); i < columns; i += kThreads) {
    atomicAdd(dweight + i, gradient[i]);
  }
}

struct NormOperands {
  NormOperands(std::int64_t num_rows, int width)
      : rows(num_rows),
        columns(width),
        x(bf16_buffer(rows * width, 1)),
        weight(bf16_buffer(width, 2)),
        dy(bf16_buffer(rows * width, 3)),
        y(bf16_buffer(rows * width, 4)),
        scale(random_buffer(static_cast<std::size_t>(rows), DType::Fp32, 5)),
        dweight(random_buffer(static_cast<std::size_t>(width), DType::Fp32, 6)) {}

  template <bool kCentred>
  void enqueue(bool backward, Stream stream) const {
    const auto blocks = static_cast<unsigned>(rows < 1056 ? rows : (backward ? 1056 : rows));
    if (backward) {
      norm_backward<kCentred>
          <<<blocks, kThreads, sizeof(float) * static_cast<unsigned>(columns), stream>>>(
              x.as<__nv_bfloat16>(), weight.as<__nv_bfloat16>(), dy.as<__nv_bfloat16>(),
              scale.as<float>(), y.as<__nv_bfloat16>(), dweight.as<float>(), rows, columns);
    } else {
      norm_forward<kCentred><<<blocks, kThreads, 0, stream>>>(
          x.as<__nv_bfloat16>(), weight.as<__nv_bfloat16>(), y.as<__nv_bfloat16>(),
          scale.as<float>(), rows, columns);
    }
    check_launch("norm");
  }

  std::int64_t rows;
  int columns;
  DeviceBuffer x;
  DeviceBuffer weight;
  DeviceBuffer dy;
  DeviceBuffer y;
  DeviceBuffer scale;
  DeviceBuffer dweight;
};

void add_norm(std::vector<Case>& cases, bool centred, bool backward, std::int64_t bytes,
              int columns) {
  const std::int64_t rows = bytes / (2 * columns);
  if (rows == 0) {
    return;
  }
  MemorySample shape = memory_sample("norm", centred ? "layer-norm" : "rms-norm",
                                     (backward ? 2 : 1) * bytes, bytes, backward);
  shape.rows = rows;
  shape.columns = columns;
  cases.push_back(memory_case(shape, [=] {
    const auto operands = std::make_shared<NormOperands>(rows, columns);
    return Launch{.enqueue = [=](Stream stream) {
      if (centred) {
        operands->enqueue<true>(backward, stream);
      } else {
        operands->enqueue<false>(backward, stream);
      }
    }};
  }));
}

std::vector<Case> norm_cases(const BenchmarkContext&) {
  std::vector<Case> cases;
  for (const std::int64_t bytes : memory_sizes()) {
    for (const bool backward : {false, true}) {
      add_norm(cases, false, backward, bytes, 4096);
      if (bytes >= 1 << 24) {
        add_norm(cases, true, backward, bytes, 4096);
        add_norm(cases, false, backward, bytes, 8192);
      }
    }
  }
  return cases;
}

}  // namespace

extern const Benchmark benchmark_norm;
const Benchmark benchmark_norm = {"norm", "RMSNorm and LayerNorm, forward and backward", 0.5,
                                  norm_cases};

}  // namespace orrery::calibrate::cuda
