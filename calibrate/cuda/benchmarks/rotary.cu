// SPDX-License-Identifier: Apache-2.0
// Rotary position embedding of queries or keys in place of a layout tokens x heads x 128; its
// backward is the same rotation the other way.
#include <memory>

#include "calibrate/cuda/benchmark.hpp"
#include "calibrate/cuda/kernels.cuh"

namespace orrery::calibrate::cuda {
namespace {

constexpr int kHeadDim = 128;
constexpr int kHeads = 32;
constexpr int kRotaryPacks = kHeadDim / 2 / kLanes;  // of half a head

// A thread rotates one pack of the first half of a head with its partner in the second half. The
// tables of cosines and sines stay in the cache.
__global__ void rotate(const __nv_bfloat16* x, const float* cosines, const float* sines,
                       __nv_bfloat16* y, std::int64_t heads) {
  float a[kLanes];
  float b[kLanes];
  for (std::int64_t i = global_thread(); i < heads * kRotaryPacks; i += num_threads()) {
    const std::int64_t head = i / kRotaryPacks;
    const int pack = static_cast<int>(i % kRotaryPacks);
    const std::int64_t first = head * 2 * kRotaryPacks + pack;
    const std::int64_t angle = head / kHeads % 4096 * (kHeadDim / 2) + pack * kLanes;
    load(x, first, a);
    load(x, first + kRotaryPacks, b);
    for (int lane = 0; lane < kLanes; ++lane) {
      const float c = cosines[angle + lane];
      const float s = sines[angle + lane];
      const float turned = a[lane] * c - b[lane] * s;
      b[lane] = b[lane] * c + a[lane] * s;
      a[lane] = turned;
    }
    store(y, first, a);
    store(y, first + kRotaryPacks, b);
  }
}

std::vector<Case> rotary_cases(const BenchmarkContext&) {
  std::vector<Case> cases;
  for (const std::int64_t bytes : memory_sizes()) {
    const std::int64_t heads = bytes / 2 / kHeadDim;
    MemorySample shape = memory_sample("elementwise", "rotary", bytes, bytes, false);
    shape.rows = heads;
    shape.columns = kHeadDim;
    cases.push_back(memory_case(shape, [heads] {
      struct Operands {
        DeviceBuffer x, y, cosines, sines;
      };
      constexpr std::size_t kAngles = 4096 * kHeadDim / 2;
      const auto buffers = std::make_shared<Operands>();
      buffers->x = bf16_buffer(heads * kHeadDim, 1);
      buffers->y = bf16_buffer(heads * kHeadDim, 2);
      buffers->cosines = random_buffer(kAngles, DType::Fp32, 3);
      buffers->sines = random_buffer(kAngles, DType::Fp32, 4);
      return Launch{.enqueue = [buffers, heads](Stream stream) {
        rotate<<<grid_for(heads * kRotaryPacks), kThreads, 0, stream>>>(
            buffers->x.as<__nv_bfloat16>(), buffers->cosines.as<float>(),
            buffers->sines.as<float>(), buffers->y.as<__nv_bfloat16>(), heads);
        check_launch("rotary");
      }};
    }));
  }
  return cases;
}

}  // namespace

extern const Benchmark benchmark_rotary;
const Benchmark benchmark_rotary = {"rotary", "rotary position embedding", 0.5, rotary_cases};

}  // namespace orrery::calibrate::cuda
