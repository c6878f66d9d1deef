// SPDX-License-Identifier: Apache-2.0
// Casts: bf16 to fp32 and back, and quantising bf16 to fp8 with a given scale while its largest
// value is found (delayed scaling).

#include <memory>

#include "calibrate/cuda/benchmark.hpp"
#include "calibrate/cuda/kernels.cuh"

namespace orrery::calibrate::cuda {
namespace {

__global__ void widen(const __nv_bfloat16* from, float4* to, std::int64_t packs) {
  float v[kLanes];
  for (std::int64_t pack = global_thread(); pack < packs; pack += num_threads()) {
    load(from, pack, v);
    to[2 * pack] = make_float4(v[0], v[1], v[2], v[3]);
    to[2 * pack + 1] = make_float4(v[4], v[5], v[6], v[7]);
  }
}

__global__ void narrow(const float4* from, __nv_bfloat16* to, std::int64_t packs) {
  for (std::int64_t pack = global_thread(); pack < packs; pack += num_threads()) {
    const float4 a = from[2 * pack];
    const float4 b = from[2 * pack + 1];
    const float v[kLanes] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
    store(to, pack, v);
  }
}

__global__ void quantise(const __nv_bfloat16* from, uint2* to, float scale, float* largest,
                         std::int64_t packs) {
  float v[kLanes];
  float top = 0;
  for (std::int64_t pack = global_thread(); pack < packs; pack += num_threads()) {
    load(from, pack, v);
    to[pack] = quantised(v, scale, top).bits;
  }
  raise_to(top, largest);
}

enum class Cast { Widen, Narrow, Quantise };

void add_cast(std::vector<Case>& cases, Cast kind, std::int64_t elements) {
  const std::int64_t packs = elements / kLanes;
  const char* operation = kind == Cast::Widen    ? "bf16-to-fp32"
                          : kind == Cast::Narrow ? "fp32-to-bf16"
                                                 : "bf16-to-fp8";
  const std::int64_t read = (kind == Cast::Narrow ? 4 : 2) * elements;
  const std::int64_t written = (kind == Cast::Widen ? 4 : kind == Cast::Narrow ? 2 : 1) * elements;
  MemorySample shape = memory_sample("cast", operation, read, written, false);
  if (kind == Cast::Quantise) {
    shape.dtype = DType::Fp8;
  }
  cases.push_back(memory_case(shape, [=] {
    struct Operands {
      DeviceBuffer half, full, largest;
    };
    const auto o = std::make_shared<Operands>();
    o->half = bf16_buffer(elements, 1);
    o->full = DeviceBuffer(static_cast<std::size_t>(4 * elements));
    o->largest = random_buffer(1, DType::Fp32, 2);
    return Launch{.enqueue = [o, kind, packs](Stream stream) {
      const unsigned blocks = grid_for(packs);
      auto* half = o->half.as<__nv_bfloat16>();
      if (kind == Cast::Widen) {
        widen<<<blocks, kThreads, 0, stream>>>(half, o->full.as<float4>(), packs);
      } else if (kind == Cast::Narrow) {
        narrow<<<blocks, kThreads, 0, stream>>>(o->full.as<float4>(), half, packs);
      } else {
        quantise<<<blocks, kThreads, 0, stream>>>(half, o->full.as<uint2>(), 2.0F,
                                                  o->largest.as<float>(), packs);
      }
      check_launch("cast");
    }};
  }));
}

std::vector<Case> cast_cases(const BenchmarkContext& context) {
  std::vector<Case> cases;
  for (const std::int64_t bytes : memory_sizes()) {
    add_cast(cases, Cast::Widen, bytes / 2);
    add_cast(cases, Cast::Narrow, bytes / 2);
    if (context.device.has(DType::Fp8)) {
      add_cast(cases, Cast::Quantise, bytes / 2);
    }
  }
  return cases;
}

}  // namespace

extern const Benchmark benchmark_cast;
const Benchmark benchmark_cast = {"cast", "casts between bf16 and fp32, quantising to fp8", 0.5,
                                  cast_cases};

}  // namespace orrery::calibrate::cuda
