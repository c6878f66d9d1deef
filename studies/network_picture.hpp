// SPDX-License-Identifier: Apache-2.0
// A network as its chain of blocks, top down, with their shares of the parameters and of the
// forward FLOPs of one sequence.
#pragma once

#include <string>

#include "models/network.hpp"

namespace orrery::studies {

// Blocks that repeat are drawn once with their count, and so are patterns of up to eight blocks.
std::string network_svg(const models::Network& network);

}  // namespace orrery::studies
