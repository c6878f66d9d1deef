// SPDX-License-Identifier: Apache-2.0
// Products of a GPU whose kernels are those of a relative, from forward products timed on it in
// bursts: its own formula for each number format under the relative's residual sets, which are
// ratios, so that what other layouts, experts and sustained load take stays the relative's. Errors
// are cross-validated as those of fit_kernels.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "calibrate/fit/kernels.hpp"

namespace orrery::calibrate {

// After transfer_kernels, which has filled fit.profile.
void fit_relative_gemm(const topologies::Gpu& gpu, std::span<const Sample> samples,
                       const std::string& source, std::uint64_t seed, KernelFit& fit);

}  // namespace orrery::calibrate
