// SPDX-License-Identifier: Apache-2.0
// SwiGLU and GeLU, forward and backward, one fused kernel each.
#include <memory>

#include "calibrate/cuda/benchmark.hpp"
#include "calibrate/cuda/kernels.cuh"

namespace orrery::calibrate::cuda {
namespace {

enum class Function { SwiGlu, SwiGluBackward, Gelu, GeluBackward };

__device__ float sigmoid(float x) { return 1.0F / (1.0F + __expf(-x)); }

// The tanh form, as training uses it.
__device__ float gelu(float x) { return x * sigmoid(1.5957691F * (x + 0.044715F * x * x * x)); }

__device__ float gelu_slope(float x) {
  const float s = sigmoid(1.5957691F * (x + 0.044715F * x * x * x));
  return s + x * s * (1 - s) * 1.5957691F * (1 + 0.134145F * x * x);
}

// gate and up are separate halves; `out` and `out2` are the gradients of both backward.
template <Function kFunction>
__global__ void activate(const __nv_bfloat16* gate, const __nv_bfloat16* up,
                         const __nv_bfloat16* grad, __nv_bfloat16* out, __nv_bfloat16* out2,
                         std::int64_t packs) {
  float a[kLanes];
  float b[kLanes];
  float c[kLanes];
  for (std::int64_t pack = global_thread(); pack < packs; pack += num_threads()) {
    load(gate, pack, a);
    if constexpr (kFunction == Function::SwiGlu || kFunction == Function::SwiGluBackward) {
      load(up, pack, b);
    }
    if constexpr (kFunction == Function::SwiGluBackward || kFunction == Function::GeluBackward) {
      load(grad, pack, c);
    }
    for (int i = 0; i < kLanes; ++i) {
      if constexpr (kFunction == Function::SwiGlu) {
        a[i] = a[i] * sigmoid(a[i]) * b[i];
      } else if constexpr (kFunction == Function::Gelu) {
        a[i] = gelu(a[i]);
      } else if constexpr (kFunction == Function::GeluBackward) {
        a[i] = c[i] * gelu_slope(a[i]);
      } else {
        const float s = sigmoid(a[i]);
        const float d_up = c[i] * a[i] * s;
        a[i] = c[i] * b[i] * s * (1 + a[i] * (1 - s));
        b[i] = d_up;
      }
    }
    store(out, pack, a);
    if constexpr (kFunction == Function::SwiGluBackward) {
      store(out2, pack, b);
    }
  }
}

template <Function kFunction>
std::function<Launch()> prepare(std::int64_t elements) {
  return [elements] {
    struct Operands {
      DeviceBuffer gate, up, grad, out, out2;
    };
    constexpr bool kGlu = kFunction == Function::SwiGlu || kFunction == Function::SwiGluBackward;
    constexpr bool kBackward =
        kFunction == Function::SwiGluBackward || kFunction == Function::GeluBackward;
    const auto buffers = std::make_shared<Operands>();
    buffers->gate = bf16_buffer(elements, 1);
    buffers->up = bf16_buffer(kGlu ? elements : 1, 2);
    buffers->grad = bf16_buffer(kBackward ? elements : 1, 3);
    buffers->out = bf16_buffer(elements, 4);
    buffers->out2 = bf16_buffer(kGlu && kBackward ? elements : 1, 5);
    return Launch{.enqueue = [buffers, elements](Stream stream) {
      const std::int64_t packs = elements / kLanes;
      activate<kFunction><<<grid_for(packs), kThreads, 0, stream>>>(
          buffers->gate.template as<__nv_bfloat16>(), buffers->up.template as<__nv_bfloat16>(),
          buffers->grad.template as<__nv_bfloat16>(), buffers->out.template as<__nv_bfloat16>(),
          buffers->out2.template as<__nv_bfloat16>(), packs);
      check_launch("activation");
    }};
  };
}

std::vector<Case> activation_cases(const BenchmarkContext&) {
  std::vector<Case> cases;
  for (const std::int64_t bytes : memory_sizes()) {
    const std::int64_t n = bytes / 2;
    cases.push_back(memory_case(memory_sample("elementwise", "swiglu", 2 * bytes, bytes, false),
                                prepare<Function::SwiGlu>(n)));
    cases.push_back(memory_case(memory_sample("elementwise", "swiglu", 3 * bytes, 2 * bytes, true),
                                prepare<Function::SwiGluBackward>(n)));
    if (bytes >= 1 << 22) {
      cases.push_back(memory_case(memory_sample("elementwise", "gelu", bytes, bytes, false),
                                  prepare<Function::Gelu>(n)));
      cases.push_back(memory_case(memory_sample("elementwise", "gelu", 2 * bytes, bytes, true),
                                  prepare<Function::GeluBackward>(n)));
    }
  }
  return cases;
}

}  // namespace

extern const Benchmark benchmark_activation;
const Benchmark benchmark_activation = {"activation", "SwiGLU and GeLU, forward and backward", 0.5,
                                        activation_cases};

}  // namespace orrery::calibrate::cuda
