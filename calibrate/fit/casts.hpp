// SPDX-License-Identifier: Apache-2.0
// The casts of a profile (costmodel::CastParameters) from samples of quantisation kernels that were
// called again and again on the same operands: launch, rate in the L2 cache, rate from HBM and the
// sizes between which the cache stops to help, by robust least squares on log time. The error is
// cross-validated: shapes of one width are left out together. Deterministic for a seed.
#pragma once

#include <cstdint>
#include <span>

#include "calibrate/fit/kernels.hpp"

namespace orrery::calibrate {

inline constexpr std::string_view kCastClass = "cast fp8";

// A cast whose operands an earlier call may have left in the cache.
bool is_warm_cast(const Sample& sample);

void fit_casts(const topologies::Gpu& gpu, std::span<const Sample> samples, std::uint64_t seed,
               KernelFit& fit);

}  // namespace orrery::calibrate
