// SPDX-License-Identifier: Apache-2.0
// Runs the micro-benchmarks one after the other within the time budget.
#pragma once

#include <vector>

#include "calibrate/gpu.hpp"

namespace orrery::calibrate::cuda {

std::vector<GpuBenchmarkInfo> benchmark_names();
GpuRun run(const GpuOptions& options, const ProgressCallback& progress);

}  // namespace orrery::calibrate::cuda
