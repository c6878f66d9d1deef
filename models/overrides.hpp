// SPDX-License-Identifier: Apache-2.0
// What --set does to a network's document, one assignment ("path=value") at a time; members moe,
// mla and adapters come into being with their first field. Applying the same list twice changes
// nothing.
#pragma once

#include <string>
#include <vector>

#include "base/json.hpp"

namespace orrery::models {

void apply_overrides(Json& document, const std::vector<std::string>& overrides);

}  // namespace orrery::models
