// SPDX-License-Identifier: Apache-2.0
// Measures the kernels of training on one GPU (`orrery calibrate gpu`). Needs a build with CUDA and
// a device; both missing is Error(DeviceMissing), exit code 5. Not deterministic: it measures.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "calibrate/samples.hpp"
#include "calibrate/shapes.hpp"

namespace orrery::calibrate {

struct GpuOptions {
  std::vector<std::string> only;  // names of micro-benchmarks; empty: all
  std::vector<DType> dtypes;      // of matrix kernels; empty: all that the chip has
  std::vector<NetworkRequest> networks;
  double budget_seconds = 150;
  int device = 0;
};

struct GpuRun {
  SampleFile file;
  int above_ceiling = 0;
  std::string gpu;                   // name in topologies/gpus; empty: unknown, no ceilings checked
  std::vector<std::string> skipped;  // cases without a sample, each with the reason
};

using ProgressCallback = std::function<void(double fraction, const std::string& note)>;

struct GpuBenchmarkInfo {
  std::string name;
  std::string description;
};
std::vector<GpuBenchmarkInfo> gpu_benchmarks();  // empty in a build without CUDA

GpuRun measure_gpu(const GpuOptions& options, const ProgressCallback& progress);

}  // namespace orrery::calibrate
