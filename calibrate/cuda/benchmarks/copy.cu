// SPDX-License-Identifier: Apache-2.0
// The plainest kernels: copying, adding two tensors (residuals), and permuting rows as expert
// dispatch does.
#include <memory>

#include "calibrate/cuda/benchmark.hpp"
#include "calibrate/cuda/kernels.cuh"

namespace orrery::calibrate::cuda {
namespace {

constexpr int kWidth = 4096;
constexpr int kPacks = kWidth / kLanes;

enum class Kind { Copy, Add, Permute };

template <Kind kKind>
__global__ void move(const __nv_bfloat16* x, const __nv_bfloat16* x2, __nv_bfloat16* y,
                     std::int64_t packs) {
  float a[kLanes];
  float b[kLanes];
  const std::int64_t rows = packs / kPacks;
  for (std::int64_t pack = global_thread(); pack < packs; pack += num_threads()) {
    std::int64_t from = pack;
    if constexpr (kKind == Kind::Permute) {
      from = (pack / kPacks * 40'503) % rows * kPacks + pack % kPacks;
    }
    load(x, from, a);
    if constexpr (kKind == Kind::Add) {
      load(x2, pack, b);
      for (int i = 0; i < kLanes; ++i) {
        a[i] += b[i];
      }
    }
    store(y, pack, a);
  }
}

template <Kind kKind>
Case move_case(const char* operation, const char* kernel_class, std::int64_t bytes) {
  const MemorySample shape =
      memory_sample(kernel_class, operation, (kKind == Kind::Add ? 2 : 1) * bytes, bytes, false);
  return memory_case(shape, [bytes] {
    struct Operands {
      DeviceBuffer x, x2, y;
    };
    const auto o = std::make_shared<Operands>();
    o->x = bf16_buffer(bytes / 2, 1);
    o->x2 = bf16_buffer(kKind == Kind::Add ? bytes / 2 : 1, 2);
    o->y = bf16_buffer(bytes / 2, 3);
    return Launch{.enqueue = [o, bytes](Stream stream) {
      const std::int64_t packs = bytes / 16;
      move<kKind><<<grid_for(packs), kThreads, 0, stream>>>(
          o->x.template as<__nv_bfloat16>(), o->x2.template as<__nv_bfloat16>(),
          o->y.template as<__nv_bfloat16>(), packs);
      check_launch("copy");
    }};
  });
}

std::vector<Case> copy_cases(const BenchmarkContext&) {
  std::vector<Case> cases;
  for (const std::int64_t bytes : memory_sizes()) {
    cases.push_back(move_case<Kind::Copy>("copy", "copy", bytes));
    cases.push_back(move_case<Kind::Add>("add", "elementwise", bytes));
    cases.push_back(move_case<Kind::Permute>("permute", "permute", bytes));
  }
  return cases;
}

}  // namespace

extern const Benchmark benchmark_copy;
const Benchmark benchmark_copy = {"copy", "copying, adding and permuting rows", 0.5, copy_cases};

}  // namespace orrery::calibrate::cuda
