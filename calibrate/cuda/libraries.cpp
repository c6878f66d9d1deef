// SPDX-License-Identifier: Apache-2.0
#include "calibrate/cuda/libraries.hpp"

#include "calibrate/cuda/lt_gemm.hpp"

namespace orrery::calibrate::cuda {

std::vector<std::pair<std::string, std::string>> library_versions() {
  std::vector<std::pair<std::string, std::string>> versions;
  if (std::string version = lt_version(); !version.empty()) {
    versions.emplace_back("cublasLt", std::move(version));
  }
  return versions;
}

}  // namespace orrery::calibrate::cuda
