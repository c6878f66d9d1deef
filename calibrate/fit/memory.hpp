// SPDX-License-Identifier: Apache-2.0
// The share of HBM bandwidth that each class of memory-bound kernel reaches, from samples that move
// far more than the L2 cache holds: the median over shapes, fused kernels only.
#pragma once

#include <span>
#include <string>

#include "calibrate/fit/kernels.hpp"

namespace orrery::calibrate {

void fit_memory(const topologies::Gpu& gpu, std::span<const Sample> samples, KernelFit& fit);

// Replaces or adds where a section's numbers come from, in the order of the document.
void set_source(costmodel::Profile& profile, const std::string& section, const std::string& text);

}  // namespace orrery::calibrate
