// SPDX-License-Identifier: Apache-2.0
// What to measure: shapes that fill the space evenly in the logarithm of each dimension (Halton
// sequence), probes one element beside a tile edge, and the exact kernels of given networks at
// their tensor-parallel degrees. Deterministic; no device is needed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "calibrate/sample_shapes.hpp"

namespace orrery::models {
struct Network;
}

namespace orrery::calibrate {

struct ShapeLimits {
  double max_flops = 1e13;  // of one kernel; larger shapes are halved along their longest dimension
  double max_bytes = 8e9;   // of all operands together
};

// `count` shapes with m, n, k from 64 to 65,536, multiples of 16 up to 1,024 and of 128 above (fp8
// kernels need multiples of 16).
std::vector<GemmSample> space_filling_gemms(int count, DType dtype, GemmLayout layout,
                                            const ShapeLimits& limits);
// Pairs (m, m + 1) at tile edges with n = k = 4,096.
std::vector<GemmSample> edge_gemms(DType dtype, GemmLayout layout);

// Whether cuBLASLt multiplies such operands on a chip of this compute capability (90 for 9.0): fp8
// in the layout TN alone on Ada, Hopper and GeForce Blackwell (cuBLAS documentation, 8-bit
// floating point of cublasLtMatmul).
bool has_layout(DType dtype, GemmLayout layout, int capability);

double gemm_flops(const GemmSample& gemm);
// Bytes an element that AIConfigurator's tables count in the rate of a cast to fp8, which leaves
// out the second read and the write of "amax_scale"; 0 for other operations.
double rated_cast_bytes(std::string_view operation);
double gemm_bytes(const GemmSample& gemm);  // operands and result once, C twice if accumulated
double attention_flops(const AttentionSample& attention);  // backward: 2.5 x forward, both: 3.5 x

struct NetworkRequest {
  const models::Network* network = nullptr;
  std::int64_t sequence = 0;
  std::int64_t micro_batch = 1;
  std::vector<int> tensor_parallel = {1};
  DType dtype = DType::Bf16;
};

// The GEMMs of forward, input gradient and weight gradient (accumulated in fp32), each distinct
// shape once. Heads, FFN width and vocabulary are divided by the tensor-parallel degree; degrees
// that do not divide them are Errors.
std::vector<GemmSample> network_gemms(const NetworkRequest& request);
// Forward and backward of the attention of each distinct block.
std::vector<AttentionSample> network_attention(const NetworkRequest& request);

// The usual attention shapes: head sizes 64, 128 and 192/128, sequences 512 to 32,768, causal or
// not, grouped queries or not; forward and backward.
std::vector<AttentionSample> usual_attention(DType dtype, const ShapeLimits& limits);

// Powers of two from `first` to `last` bytes, `count` of them evenly spaced in the logarithm.
std::vector<std::int64_t> log_sizes(std::int64_t first, std::int64_t last, int count);

}  // namespace orrery::calibrate
