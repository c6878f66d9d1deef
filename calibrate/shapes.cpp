// SPDX-License-Identifier: Apache-2.0
#include "calibrate/shapes.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace orrery::calibrate {
namespace {

// Radical inverse of i > 0: the coordinates of a Halton sequence.
double radical_inverse(int i, int base) {
  double result = 0;
  double digit = 1.0 / base;
  for (; i > 0; i /= base) {
    result += digit * (i % base);
    digit /= base;
  }
  return result;
}

std::int64_t log_extent(double position) {
  const double extent = 64 * std::pow(1024.0, position);
  const std::int64_t multiple = extent <= 1024 ? 16 : 128;
  return std::clamp<std::int64_t>(std::llround(extent / static_cast<double>(multiple)) * multiple,
                                  64, 65'536);
}

void shrink(GemmSample& gemm, const ShapeLimits& limits) {
  while (gemm_flops(gemm) > limits.max_flops || gemm_bytes(gemm) > limits.max_bytes) {
    const std::int64_t largest = std::max({gemm.m, gemm.n, gemm.k});
    std::int64_t& longest = gemm.m == largest ? gemm.m : (gemm.n == largest ? gemm.n : gemm.k);
    if (longest <= 64) {
      return;
    }
    longest = std::max<std::int64_t>(64, longest / 2 / 16 * 16);
  }
}

DType output_of(DType dtype) { return dtype == DType::Tf32 ? DType::Fp32 : unquantised(dtype); }

}  // namespace

double gemm_flops(const GemmSample& gemm) {
  return 2.0 * static_cast<double>(gemm.m) * static_cast<double>(gemm.n) *
         static_cast<double>(gemm.k) * static_cast<double>(gemm.groups);
}

double rated_cast_bytes(std::string_view operation) {
  return operation == "bf16_to_fp8_scale" ? 3.0 : operation == "amax_scale" ? 2.0 : 0.0;
}

double gemm_bytes(const GemmSample& gemm) {
  const auto m = static_cast<double>(gemm.m);
  const auto n = static_cast<double>(gemm.n);
  const auto k = static_cast<double>(gemm.k);
  const double result = m * n * bytes_per_element(gemm.output) * (gemm.accumulate ? 2 : 1);
  return static_cast<double>(gemm.groups) *
         ((m * k + k * n) * bytes_per_element(gemm.dtype) + result);
}

double attention_flops(const AttentionSample& attention) {
  const auto q = static_cast<double>(attention.q_len);
  const auto kv = static_cast<double>(attention.kv_len);
  double pairs = q * kv;
  if (attention.causal && attention.window == 0 && q == kv) {
    pairs /= 2;
  } else if (attention.window > 0) {
    pairs = q * std::min(kv, static_cast<double>(attention.window));
  }
  const double forward = 2.0 * static_cast<double>(attention.batch * attention.heads) * pairs *
                         static_cast<double>(attention.head_dim + attention.value_head_dim);
  return forward * (attention.both_passes ? 3.5 : attention.backward ? 2.5 : 1.0);
}

std::vector<GemmSample> space_filling_gemms(int count, DType dtype, GemmLayout layout,
                                            const ShapeLimits& limits) {
  std::vector<GemmSample> gemms;
  for (int i = 1; i <= count; ++i) {
    GemmSample gemm = {.m = log_extent(radical_inverse(i, 2)),
                       .n = log_extent(radical_inverse(i, 3)),
                       .k = log_extent(radical_inverse(i, 5)),
                       .dtype = dtype,
                       .layout = layout,
                       .output = output_of(dtype)};
    shrink(gemm, limits);
    if (std::find(gemms.begin(), gemms.end(), gemm) == gemms.end()) {
      gemms.push_back(gemm);
    }
  }
  return gemms;
}

std::vector<GemmSample> edge_gemms(DType dtype, GemmLayout layout) {
  std::vector<GemmSample> gemms;
  for (const std::int64_t m : {128, 256, 512, 2048}) {
    for (const std::int64_t beside : {0, 1}) {
      gemms.push_back({.m = m + beside,
                       .n = 4096,
                       .k = 4096,
                       .dtype = dtype,
                       .layout = layout,
                       .output = output_of(dtype)});
    }
  }
  return gemms;
}

bool has_layout(DType dtype, GemmLayout layout, int capability) {
  const bool any_layout = capability >= 100 && capability < 120;
  return dtype != DType::Fp8 || layout == GemmLayout::TN || any_layout;
}

std::vector<AttentionSample> usual_attention(DType dtype, const ShapeLimits& limits) {
  struct Head {
    std::int64_t heads, kv_heads, dim, value_dim;
  };
  constexpr std::array<Head, 4> kHeads = {
      {{32, 32, 64, 64}, {32, 32, 128, 128}, {32, 8, 128, 128}, {16, 16, 192, 128}}};
  std::vector<AttentionSample> shapes;
  for (const Head& head : kHeads) {
    for (std::int64_t length = 512; length <= 32'768; length *= 2) {
      // About 16K tokens a kernel, as micro-batches have.
      const std::int64_t batch = std::max<std::int64_t>(1, 16'384 / length);
      for (const bool causal : {true, false}) {
        for (const bool backward : {false, true}) {
          AttentionSample shape = {.batch = batch,
                                   .heads = head.heads,
                                   .kv_heads = head.kv_heads,
                                   .q_len = length,
                                   .kv_len = length,
                                   .head_dim = head.dim,
                                   .value_head_dim = head.value_dim,
                                   .causal = causal,
                                   .dtype = dtype,
                                   .backward = backward};
          // Long sequences with fewer heads, as tensor ranks have.
          while (attention_flops(shape) > limits.max_flops && shape.kv_heads % 2 == 0) {
            shape.heads /= 2;
            shape.kv_heads /= 2;
          }
          // Without a mask every second length is enough: it only tells the cost of the mask.
          const bool sparse = !causal && (head.dim != 128 || length % 2048 != 0);
          if (!sparse && attention_flops(shape) <= limits.max_flops) {
            shapes.push_back(shape);
          }
        }
      }
    }
  }
  return shapes;
}

std::vector<std::int64_t> log_sizes(std::int64_t first, std::int64_t last, int count) {
  std::vector<std::int64_t> sizes;
  const double low = std::log2(static_cast<double>(first));
  const double high = std::log2(static_cast<double>(last));
  for (int i = 0; i < count; ++i) {
    const double exponent = count == 1 ? low : low + (high - low) * i / (count - 1);
    const std::int64_t size = 1LL << std::lround(exponent);
    if (sizes.empty() || sizes.back() != size) {
      sizes.push_back(size);
    }
  }
  return sizes;
}

}  // namespace orrery::calibrate
