// SPDX-License-Identifier: Apache-2.0
// Building blocks of V patterns (sim/orders/v_pattern.hpp) for any bound of activations. Between
// neighbouring devices the passes of a block lie 1 to 5 slots apart, on the way down and on the way
// up, with at most one device from which on other distances hold. All devices hold as many
// activations; the longer the ways, the more, and the fewer slots stay idle.
#pragma once

#include <vector>

#include "sim/orders/v_pattern.hpp"

namespace orrery::sim {

// At most `count` blocks with at most `peak` activations of a chunk on any device, those with the
// longest ways first. O(stages) for each of the distances that are looked at.
std::vector<std::vector<VBlock>> v_blocks_within(int stages, int peak, std::size_t count);

// Of v-min: no pattern holds fewer. In activations of a chunk.
int least_v_peak(int stages);

}  // namespace orrery::sim
