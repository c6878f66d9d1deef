// SPDX-License-Identifier: Apache-2.0
// The libraries that were measured, by name and version.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace orrery::calibrate::cuda {

// Name and version of every library that could be opened.
std::vector<std::pair<std::string, std::string>> library_versions();

}  // namespace orrery::calibrate::cuda
