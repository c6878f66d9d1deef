// SPDX-License-Identifier: Apache-2.0
// What the host takes, from samples of `orrery calibrate gpu` and of foreign files: kernel_launch,
// the wall clock of one empty kernel on a stream, and host_copy, latency and share of the link of
// pinned copies one way. What profiles have no place for (graphs, launches in a row, pageable
// copies, both ways at once) is said with what it showed.
#pragma once

#include <span>

#include "calibrate/fit/kernels.hpp"

namespace orrery::calibrate {

void fit_launch(std::span<const Sample> samples, KernelFit& fit);
void fit_host_copies(const topologies::Gpu& gpu, std::span<const Sample> samples, KernelFit& fit);

}  // namespace orrery::calibrate
