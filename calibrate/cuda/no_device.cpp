// SPDX-License-Identifier: Apache-2.0
// `calibrate/gpu.hpp` of a build without CUDA.
#include "base/error.hpp"
#include "calibrate/gpu.hpp"

namespace orrery::calibrate {

std::vector<GpuBenchmarkInfo> gpu_benchmarks() { return {}; }

GpuRun measure_gpu(const GpuOptions&, const ProgressCallback&) {
  throw Error(ErrorKind::DeviceMissing, "calibrate gpu", "this build has no CUDA",
              "build it where nvcc is found, or with -DORRERY_CUDA=ON");
}

}  // namespace orrery::calibrate
