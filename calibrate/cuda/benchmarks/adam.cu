// SPDX-License-Identifier: Apache-2.0
// AdamW over many tensors in one kernel: fp32 master weights, moments and gradients, and the bf16
// copy of the weights written beside them; 30 bytes a parameter.
#include <memory>

#include "calibrate/cuda/benchmark.hpp"
#include "calibrate/cuda/kernels.cuh"

namespace orrery::calibrate::cuda {
namespace {

constexpr int kTensors = 24;             // of one launch, as multi-tensor kernels take them
constexpr std::int64_t kChunk = 65'536;  // elements of one block's turn

struct Tensors {
  float* master[kTensors];
  float* first[kTensors];
  float* second[kTensors];
  const float* gradient[kTensors];
  __nv_bfloat16* weight[kTensors];
  std::int64_t elements;  // of each
};

__device__ void update(float& p, float& m, float& v, float g) {
  m = 0.9F * m + 0.1F * g;
  v = 0.95F * v + 0.05F * g * g;
  p -= 3e-4F * (m / (sqrtf(fabsf(v)) + 1e-8F) + 0.1F * p);
}

// One block walks chunks; consecutive blocks work on consecutive chunks of one tensor.
__global__ void adam(Tensors t) {
  const std::int64_t chunks = (t.elements + kChunk - 1) / kChunk;
  for (std::int64_t job = blockIdx.x; job < chunks * kTensors; job += gridDim.x) {
    const auto tensor = static_cast<int>(job / chunks);
    const std::int64_t begin = job % chunks * kChunk / 4;
    const std::int64_t limit = (job % chunks + 1) * kChunk;
    const std::int64_t end = (limit < t.elements ? limit : t.elements) / 4;
    auto* master = reinterpret_cast<float4*>(t.master[tensor]);
    auto* first = reinterpret_cast<float4*>(t.first[tensor]);
    auto* second = reinterpret_cast<float4*>(t.second[tensor]);
    const auto* gradient = reinterpret_cast<const float4*>(t.gradient[tensor]);
    auto* weight = reinterpret_cast<__nv_bfloat162*>(t.weight[tensor]);
    for (std::int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
      float4 p = master[i];
      float4 m = first[i];
      float4 v = second[i];
      const float4 g = gradient[i];
      update(p.x, m.x, v.x, g.x);
      update(p.y, m.y, v.y, g.y);
      update(p.z, m.z, v.z, g.z);
      update(p.w, m.w, v.w, g.w);
      master[i] = p;
      first[i] = m;
      second[i] = v;
      weight[2 * i] = __floats2bfloat162_rn(p.x, p.y);
      weight[2 * i + 1] = __floats2bfloat162_rn(p.z, p.w);
    }
  }
}

struct AdamOperands {
  explicit AdamOperands(std::int64_t each) {
    const auto all = static_cast<std::size_t>(each * kTensors);
    for (DeviceBuffer* buffer : {&master, &first, &second, &gradient}) {
      *buffer = random_buffer(all, DType::Fp32, 1);
    }
    weight = random_buffer(all, DType::Bf16, 2);
    tensors.elements = each;
    for (int i = 0; i < kTensors; ++i) {
      tensors.master[i] = master.as<float>() + i * each;
      tensors.first[i] = first.as<float>() + i * each;
      tensors.second[i] = second.as<float>() + i * each;
      tensors.gradient[i] = gradient.as<float>() + i * each;
      tensors.weight[i] = weight.as<__nv_bfloat16>() + i * each;
    }
  }
  DeviceBuffer master;
  DeviceBuffer first;
  DeviceBuffer second;
  DeviceBuffer gradient;
  DeviceBuffer weight;
  Tensors tensors{};
};

std::vector<Case> adam_cases(const BenchmarkContext&) {
  std::vector<Case> cases;
  for (const std::int64_t each : log_sizes(4096, 16 << 20, 7)) {
    const std::int64_t parameters = each * kTensors;
    MemorySample shape =
        memory_sample("optimizer", "adam", 16 * parameters, 14 * parameters, false);
    shape.rows = kTensors;
    shape.columns = each;
    shape.dtype = DType::Fp32;
    cases.push_back(memory_case(shape, [each] {
      const auto operands = std::make_shared<AdamOperands>(each);
      return Launch{.enqueue = [operands](Stream stream) {
        const Tensors& tensors = operands->tensors;
        const std::int64_t jobs = (tensors.elements + kChunk - 1) / kChunk * kTensors;
        adam<<<static_cast<unsigned>(jobs), kThreads, 0, stream>>>(tensors);
        check_launch("adam");
      }};
    }));
  }
  return cases;
}

}  // namespace

extern const Benchmark benchmark_adam;
const Benchmark benchmark_adam = {"adam", "AdamW with fp32 state, many tensors in one kernel", 0.7,
                                  adam_cases};

}  // namespace orrery::calibrate::cuda
