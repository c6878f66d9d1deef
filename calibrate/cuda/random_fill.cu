// SPDX-License-Identifier: Apache-2.0
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>

#include "calibrate/cuda/device.hpp"

namespace orrery::calibrate::cuda {
namespace {

// About normal: four uniform bytes of a hash added up (Irwin-Hall), variance 1.
__device__ float normal_like(std::uint64_t index, unsigned seed) {
  std::uint64_t x = index + (static_cast<std::uint64_t>(seed) << 40) + 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  x ^= x >> 31;
  float sum = 0;
  for (int i = 0; i < 4; ++i) {
    sum += static_cast<float>((x >> (16 * i)) & 0xffff) / 65535.0F - 0.5F;
  }
  return sum * 1.7320508F;
}

template <class T>
__global__ void fill(T* data, std::size_t count, unsigned seed) {
  const std::size_t step = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += step) {
    data[i] = static_cast<T>(normal_like(i, seed));
  }
}

template <class T>
void fill_all(const DeviceBuffer& buffer, std::size_t count, unsigned seed) {
  fill<<<2048, 256>>>(buffer.as<T>(), count, seed);
}

}  // namespace

DeviceBuffer random_buffer(std::size_t elements, DType dtype, unsigned seed) {
  DeviceBuffer buffer(elements * static_cast<std::size_t>(bytes_per_element(dtype)));
  switch (dtype) {
    case DType::Fp32:
    case DType::Tf32:
      fill_all<float>(buffer, elements, seed);
      break;
    case DType::Bf16:
      fill_all<__nv_bfloat16>(buffer, elements, seed);
      break;
    case DType::Fp16:
      fill_all<__half>(buffer, elements, seed);
      break;
    case DType::Fp8:
      fill_all<__nv_fp8_e4m3>(buffer, elements, seed);
      break;
    case DType::Nvfp4:  // not measured (DeviceInfo::has)
      break;
  }
  check_launch("random fill");
  check(cudaDeviceSynchronize(), "random fill");
  return buffer;
}

}  // namespace orrery::calibrate::cuda
