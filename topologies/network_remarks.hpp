// SPDX-License-Identifier: Apache-2.0
// Which remarks about a run are about the network between its nodes.
#pragma once

#include <string_view>

namespace orrery::topologies {

// Whether a clause in lower case states it: a kind of network with a rate beside it, "nccl over
// 100g ethernet". Linear in the length of the text.
bool states_network(std::string_view clause);

}  // namespace orrery::topologies
