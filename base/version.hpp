// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace orrery {

std::string version_text();  // "0.1.0 (g++ 12.2.0)"

}  // namespace orrery
