// SPDX-License-Identifier: Apache-2.0
// What --project-ranks prints: how long the search would have taken on more ranks.
#pragma once

#include <string>
#include <vector>

#include "base/json.hpp"
#include "search/tree/projection.hpp"

namespace orrery::cli {

std::string projection_text(const std::vector<search::Projection>& projections);
Json projection_json(const std::vector<search::Projection>& projections);

}  // namespace orrery::cli
