// SPDX-License-Identifier: Apache-2.0
// What checks of plans found have in common, on one kind of nodes and on several.
#pragma once

#include <optional>
#include <string>

#include "base/units.hpp"

namespace orrery::search {

// "" or why a plan simulated again, from its own document, does not bear out what the search said:
// `does_not_fit` and the iteration time `again` are those of the simulation.
std::string difference(const std::optional<std::string>& does_not_fit, Seconds again, Seconds said);

}  // namespace orrery::search
