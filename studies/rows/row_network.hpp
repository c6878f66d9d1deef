// SPDX-License-Identifier: Apache-2.0
// The network of a measurement: the architecture columns, completed by what its family is known to
// have (norms, positions, activation, biases) and its framework by default (dropout, padding).
#pragma once

#include <string>
#include <string_view>
#include <tl/expected.hpp>

#include "models/network.hpp"
#include "studies/rows/framework_facts.hpp"
#include "studies/rows/measurement.hpp"

namespace orrery::studies {

// Or why the row's network cannot be built.
tl::expected<models::NetworkSpec, std::string> row_network(const Measurement& row,
                                                           const FrameworkFacts& framework);

// The family that a decoder of an unknown one is taken as; empty where it is known or nothing fits.
std::string_view standing_family(const Measurement& row);

}  // namespace orrery::studies
