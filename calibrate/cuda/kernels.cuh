// SPDX-License-Identifier: Apache-2.0
// What the memory-bound kernels share: 16-byte loads and stores of bf16, sums over a block, grids.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include <cstdint>

#include "calibrate/cuda/device.hpp"

namespace orrery::calibrate::cuda {

inline constexpr int kThreads = 256;
inline constexpr int kLanes = 8;  // bf16 values of 16 bytes

struct alignas(16) Pack {
  __nv_bfloat16 values[kLanes];
};

__device__ inline void load(const __nv_bfloat16* from, std::int64_t pack, float (&to)[kLanes]) {
  const Pack packed = reinterpret_cast<const Pack*>(from)[pack];
#pragma unroll
  for (int i = 0; i < kLanes; ++i) {
    to[i] = __bfloat162float(packed.values[i]);
  }
}

__device__ inline void store(__nv_bfloat16* to, std::int64_t pack, const float (&from)[kLanes]) {
  Pack packed;
#pragma unroll
  for (int i = 0; i < kLanes; ++i) {
    packed.values[i] = __float2bfloat16(from[i]);
  }
  reinterpret_cast<Pack*>(to)[pack] = packed;
}

union Fp8Pack {
  __nv_fp8_e4m3 values[kLanes];
  uint2 bits;
};

// Scaled values; `top` becomes the largest of them and itself, unscaled.
__device__ inline Fp8Pack quantised(const float (&from)[kLanes], float scale, float& top) {
  Fp8Pack packed;
#pragma unroll
  for (int i = 0; i < kLanes; ++i) {
    top = fmaxf(top, fabsf(from[i]));
    packed.values[i] = static_cast<__nv_fp8_e4m3>(from[i] * scale);
  }
  return packed;
}

// All threads of a block of kThreads get the result.
template <class Combine>
__device__ float over_block(float value, float neutral, Combine combine) {
  __shared__ float parts[kThreads / 32];
  for (int offset = 16; offset > 0; offset /= 2) {
    value = combine(value, __shfl_xor_sync(0xffffffffU, value, offset));
  }
  __syncthreads();  // the parts of an earlier call have been read
  if (threadIdx.x % 32 == 0) {
    parts[threadIdx.x / 32] = value;
  }
  __syncthreads();
  value = neutral;
  for (const float part : parts) {
    value = combine(value, part);
  }
  return value;
}

__device__ inline float block_sum(float value) {
  return over_block(value, 0.0F, [](float a, float b) { return a + b; });
}

__device__ inline float block_max(float value) {
  return over_block(value, -INFINITY, [](float a, float b) { return fmaxf(a, b); });
}

// The largest of all blocks, each called with what its threads found: none of it negative.
__device__ inline void raise_to(float top, float* largest) {
  top = block_max(top);
  if (threadIdx.x == 0) {
    // Bits of floats that are not negative order like integers.
    atomicMax(reinterpret_cast<int*>(largest), __float_as_int(top));
  }
}

__device__ inline std::int64_t global_thread() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

__device__ inline std::int64_t num_threads() {
  return static_cast<std::int64_t>(gridDim.x) * blockDim.x;
}

// Enough blocks of kThreads for `items`, at most 64 for each of 132 SMs: grids loop.
inline unsigned grid_for(std::int64_t items) {
  const std::int64_t blocks = (items + kThreads - 1) / kThreads;
  return static_cast<unsigned>(blocks < 1 ? 1 : (blocks > 8448 ? 8448 : blocks));
}

inline DeviceBuffer bf16_buffer(std::int64_t elements, unsigned seed) {
  return random_buffer(static_cast<std::size_t>(elements), DType::Bf16, seed);
}

}  // namespace orrery::calibrate::cuda
