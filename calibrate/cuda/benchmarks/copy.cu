// SPDX-License-Identifier: Apache-2.0
// The plainest kernels: copying, adding two tensors (residuals), and permuting rows as expert
// dispatch does.
#include <memory>

#include "calibrate/cuda/benchmark.hpp"
#include "calibrate/cuda/kernels.cuh"

namespace orrery::calibrate::cuda {
namespace {

constexpr int kCopyWidth = 4096;
constexpr int kCopyPacks = kCopyWidth / kLanes;

enum class Movement { Copy, Add, Permute };

template <Movement kMovement>
__global__ void move(const __nv_bfloat16* x, const __nv_bfloat16* x2, __nv_bfloat16* y,
                     std::int64_t packs) {
  float a[kLanes];
  float b[kLanes];
  const std::int64_t rows = packs / kCopyPacks;
  for (std::int64_t pack = global_thread(); pack < packs; pack += num_threads()) {
    std::int64_t from = pack;
    if constexpr (kMovement == Movement::Permute) {
      from = (pack / kCopyPacks * 40'503) % rows * kCopyPacks + pack % kCopyPacks;
    }
    load(x, from, a);
    if constexpr (kMovement == Movement::Add) {
      load(x2, pack, b);
      for (int i = 0; i < kLanes; ++i) {
        a[i] += b[i];
      }
    }
    store(y, pack, a);
  }
}

template <Movement kMovement>
Case move_case(const char* operation, const char* kernel_class, std::int64_t bytes) {
  const MemorySample shape = memory_sample(
      kernel_class, operation, (kMovement == Movement::Add ? 2 : 1) * bytes, bytes, false);
  return memory_case(shape, [bytes] {
    struct Operands {
      DeviceBuffer x, x2, y;
    };
    const auto o = std::make_shared<Operands>();
    o->x = bf16_buffer(bytes / 2, 1);
    o->x2 = bf16_buffer(kMovement == Movement::Add ? bytes / 2 : 1, 2);
    o->y = bf16_buffer(bytes / 2, 3);
    return Launch{.enqueue = [o, bytes](Stream stream) {
      const std::int64_t packs = bytes / 16;
      move<kMovement><<<grid_for(packs), kThreads, 0, stream>>>(
          o->x.template as<__nv_bfloat16>(), o->x2.template as<__nv_bfloat16>(),
          o->y.template as<__nv_bfloat16>(), packs);
      check_launch("copy");
    }};
  });
}

std::vector<Case> copy_cases(const BenchmarkContext&) {
  std::vector<Case> cases;
  for (const std::int64_t bytes : memory_sizes()) {
    cases.push_back(move_case<Movement::Copy>("copy", "copy", bytes));
    cases.push_back(move_case<Movement::Add>("add", "elementwise", bytes));
    cases.push_back(move_case<Movement::Permute>("permute", "permute", bytes));
  }
  return cases;
}

}  // namespace

extern const Benchmark benchmark_copy;
const Benchmark benchmark_copy = {"copy", "copying, adding and permuting rows", 0.5, copy_cases};

}  // namespace orrery::calibrate::cuda
