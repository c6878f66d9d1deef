// SPDX-License-Identifier: Apache-2.0
// Sliding windows among Megatron-LM's arguments: --window-size of the layers that have one,
// --window-attn-skip-freq for those that see everything (megatron/training/arguments.py).
#pragma once

#include "models/network.hpp"
#include "plan/launch_script/megatron_network.hpp"

namespace orrery::plan {

// Adds the arguments of a network that has a window.
void write_megatron_window(const models::NetworkSpec& spec, FlagList& flags);

// Sets sliding_window and global_attention_interval where the arguments state a window; the layers
// of `spec` must be known. An Error where full layers are not every n-th.
void read_megatron_window(MegatronArguments& arguments, models::NetworkSpec& spec);

}  // namespace orrery::plan
