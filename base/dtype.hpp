// SPDX-License-Identifier: Apache-2.0
// Number formats of operators and peaks.
#pragma once

#include <string_view>

namespace orrery {

enum class DType { Fp32, Tf32, Bf16, Fp16, Fp8, Nvfp4 };
inline constexpr int kNumDTypes = 6;

// Narrower than 16 bits: matrix products alone run in it, all else beside them in 16 bits.
constexpr bool is_quantised(DType dtype) { return dtype == DType::Fp8 || dtype == DType::Nvfp4; }
constexpr bool has_16_bits(DType dtype) { return dtype == DType::Bf16 || dtype == DType::Fp16; }
constexpr DType unquantised(DType dtype) { return is_quantised(dtype) ? DType::Bf16 : dtype; }

// With the scale of 8 bits that 16 elements of nvfp4 share.
constexpr double bytes_per_element(DType dtype) {
  switch (dtype) {
    case DType::Fp32:
    case DType::Tf32:
      return 4;
    case DType::Bf16:
    case DType::Fp16:
      return 2;
    case DType::Fp8:
      return 1;
    case DType::Nvfp4:
      return 0.5625;
  }
  return 0;
}

std::string_view to_text(DType dtype);                             // "bf16"
DType parse_dtype(std::string_view name, std::string_view where);  // Error with the nearest name

}  // namespace orrery
