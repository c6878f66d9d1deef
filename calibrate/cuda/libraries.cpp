// SPDX-License-Identifier: Apache-2.0
#include "calibrate/cuda/libraries.hpp"

#include "calibrate/cuda/lt_gemm.hpp"
#ifdef ORRERY_HAS_CUDNN
#include "calibrate/cuda/cudnn_graph.hpp"
#endif

namespace orrery::calibrate::cuda {

std::vector<std::pair<std::string, std::string>> library_versions() {
  std::vector<std::pair<std::string, std::string>> versions;
  if (std::string version = lt_version(); !version.empty()) {
    versions.emplace_back("cublasLt", std::move(version));
  }
#ifdef ORRERY_HAS_CUDNN
  if (std::string version = cudnn_version(); !version.empty()) {
    versions.emplace_back("cudnn", std::move(version));
  }
#endif
  return versions;
}

}  // namespace orrery::calibrate::cuda
