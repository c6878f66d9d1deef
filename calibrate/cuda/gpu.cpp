// SPDX-License-Identifier: Apache-2.0
#include "calibrate/gpu.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/text.hpp"
#include "calibrate/cuda/run.hpp"

namespace orrery::calibrate {

std::vector<GpuBenchmarkInfo> gpu_benchmarks() { return cuda::benchmark_names(); }

GpuRun measure_gpu(const GpuOptions& options, const ProgressCallback& progress) {
  std::vector<std::string> known;
  for (const GpuBenchmarkInfo& info : gpu_benchmarks()) {
    known.push_back(info.name);
  }
  for (const std::string& name : options.only) {
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      bad_input("--only", "unknown micro-benchmark \"" + printable(name) + "\"",
                nearest_hint(name, known));
    }
  }
  return cuda::run(options, progress);
}

}  // namespace orrery::calibrate
