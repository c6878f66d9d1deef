// SPDX-License-Identifier: Apache-2.0
// Quantising bf16 to fp8 with a given scale, as it lies and transposed in one pass, while its
// largest value is found: what products in fp8 take beside themselves where the library multiplies
// in one layout alone. A block takes a tile of kTile x kTile and turns it in shared memory.
#include <cuda_fp8.h>

#include <algorithm>
#include <memory>

#include "calibrate/cuda/benchmark.hpp"
#include "calibrate/cuda/kernels.cuh"

namespace orrery::calibrate::cuda {
namespace {

constexpr int kTile = 64;
constexpr int kTilePacks = kTile * kTile / kLanes;

__global__ void cast_and_transpose(const __nv_bfloat16* from, uint2* to, uint2* turned, float scale,
                                   float* largest, std::int64_t rows, std::int64_t columns) {
  // Rows of the tile are columns of the matrix; the pad keeps their banks apart.
  __shared__ __nv_fp8_e4m3 tile[kTile][kTile + 4];
  const std::int64_t first_row = static_cast<std::int64_t>(blockIdx.y) * kTile;
  const std::int64_t first_column = static_cast<std::int64_t>(blockIdx.x) * kTile;
  float v[kLanes];
  float top = 0;
  for (int pack = static_cast<int>(threadIdx.x); pack < kTilePacks; pack += kThreads) {
    const int row = pack / (kTile / kLanes);
    const int column = pack % (kTile / kLanes) * kLanes;
    const std::int64_t at = ((first_row + row) * columns + first_column + column) / kLanes;
    load(from, at, v);
    const Fp8Pack out = quantised(v, scale, top);
    for (int i = 0; i < kLanes; ++i) {
      tile[column + i][row] = out.values[i];
    }
    to[at] = out.bits;
  }
  __syncthreads();
  for (int pack = static_cast<int>(threadIdx.x); pack < kTilePacks; pack += kThreads) {
    const int column = pack / (kTile / kLanes);
    const int row = pack % (kTile / kLanes) * kLanes;
    Fp8Pack out;
    for (int i = 0; i < kLanes; ++i) {
      out.values[i] = tile[column][row + i];
    }
    turned[((first_column + column) * rows + first_row + row) / kLanes] = out.bits;
  }
  raise_to(top, largest);
}

void add_cast_transpose(std::vector<Case>& cases, std::int64_t elements) {
  const std::int64_t columns = std::min<std::int64_t>(4096, elements / kTile);
  const std::int64_t rows = elements / columns;
  MemorySample shape =
      memory_sample("cast_transpose", "bf16-to-fp8", 2 * elements, 2 * elements, false);
  shape.rows = rows;
  shape.columns = columns;
  shape.dtype = DType::Fp8;
  cases.push_back(memory_case(shape, [=] {
    struct Operands {
      DeviceBuffer from, to, turned, largest;
    };
    const auto o = std::make_shared<Operands>();
    o->from = bf16_buffer(elements, 1);
    o->to = DeviceBuffer(static_cast<std::size_t>(elements));
    o->turned = DeviceBuffer(static_cast<std::size_t>(elements));
    o->largest = random_buffer(1, DType::Fp32, 2);
    return Launch{.enqueue = [o, rows, columns](Stream stream) {
      const dim3 tiles(static_cast<unsigned>(columns / kTile), static_cast<unsigned>(rows / kTile));
      cast_and_transpose<<<tiles, kThreads, 0, stream>>>(
          o->from.as<__nv_bfloat16>(), o->to.as<uint2>(), o->turned.as<uint2>(), 2.0F,
          o->largest.as<float>(), rows, columns);
      check_launch("cast-transpose");
    }};
  }));
}

std::vector<Case> cast_transpose_cases(const BenchmarkContext& context) {
  std::vector<Case> cases;
  if (context.device.has(DType::Fp8)) {
    for (const std::int64_t bytes : memory_sizes()) {
      add_cast_transpose(cases, bytes / 2);
    }
  }
  return cases;
}

}  // namespace

extern const Benchmark benchmark_cast_transpose;
const Benchmark benchmark_cast_transpose = {
    "cast-transpose", "quantising to fp8, as it lies and transposed", 0.5, cast_transpose_cases};

}  // namespace orrery::calibrate::cuda
