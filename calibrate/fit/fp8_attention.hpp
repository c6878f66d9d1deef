// SPDX-License-Identifier: Apache-2.0
// How much faster the products of attention's forward pass run in fp8 than in 16 bits, from calls
// that one software was timed at in both: a rate at head size 128 and an exponent of the head size
// by robust least squares on the ratios. The error, of the time in fp8 where that in 16 bits is
// known, is cross-validated: shapes of the same heads are left out together. Deterministic for a
// seed.
#pragma once

#include <cstdint>
#include <span>

#include "calibrate/fit/kernels.hpp"

namespace orrery::calibrate {

inline constexpr std::string_view kFp8AttentionClass = "fp8 attention over 16 bits";

void fit_fp8_attention(std::span<const Sample> samples, std::uint64_t seed, KernelFit& fit);

}  // namespace orrery::calibrate
