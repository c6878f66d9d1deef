// SPDX-License-Identifier: Apache-2.0
// Attention of a GPU whose kernels are those of a relative, from forward calls timed on it: its own
// parameters of the formula under the relative's residual sets. Those are ratios (what tiles and
// waves take, how kernels of training differ from those of inference), so they stay, and so does
// the rate of the backward pass over that of the forward pass. Errors are cross-validated as those
// of fit_kernels.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "calibrate/fit/kernels.hpp"

namespace orrery::calibrate {

// After transfer_kernels, which has filled fit.profile.
void fit_relative_attention(const topologies::Gpu& gpu, std::span<const Sample> samples,
                            const std::string& source, std::uint64_t seed, KernelFit& fit);

}  // namespace orrery::calibrate
