// SPDX-License-Identifier: Apache-2.0
// The network part of Megatron-LM's arguments, in both directions: reading what was written gives
// an equal network (names apart).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "plan/launch_script/megatron_arguments.hpp"
#include "plan/plan.hpp"

namespace orrery::plan {

using FlagList = std::vector<std::pair<std::string, std::string>>;  // switches have no value

// Error for what Megatron-LM's GPT model cannot express.
void write_megatron_network(const Plan& plan, FlagList& flags);

// Megatron-LM's defaults where the arguments say nothing, or `given` where there is one; the
// arguments must agree with a given network. `tp` pads the vocabulary.
models::Network read_megatron_network(MegatronArguments& arguments, int tp,
                                      const models::Network* given);

}  // namespace orrery::plan
