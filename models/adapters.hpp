// SPDX-License-Identifier: Apache-2.0
// What low-rank adapters change in a network whose blocks have them (network.hpp, AdapterSpec).
#pragma once

#include <string>

#include "models/network.hpp"

namespace orrery::models {

// Freezes what no gradient passes: the first layers of the chain, up to the first trained weight,
// become blocks of their own.
void settle_adapters(Network& network);

// Throws Error (bad input) where the rank is larger than a width that it adapts.
void check_adapters(const Network& network, const std::string& where);

}  // namespace orrery::models
