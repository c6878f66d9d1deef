// SPDX-License-Identifier: Apache-2.0
// What a row says of its mixture of experts.
#pragma once

#include <optional>
#include <string>

#include "studies/rows/measurement.hpp"

namespace orrery::studies {

// Why a row whose cells or names speak of experts does not state which: without their number the
// network would be simulated as a dense one. Nothing for dense networks and complete mixtures.
std::optional<std::string> missing_experts(const Measurement& row);

}  // namespace orrery::studies
