// SPDX-License-Identifier: Apache-2.0
// The names that the listed networks go by.
#pragma once

#include <string>

namespace orrery::studies {

// The network that the letters and digits of a name are those of; empty where there is none.
std::string known_name(const std::string& key);

}  // namespace orrery::studies
