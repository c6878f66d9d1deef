// SPDX-License-Identifier: Apache-2.0
// What leaves the device, in a few words that follow others.
#pragma once

#include <string>

#include "plan/offload.hpp"

namespace orrery::plan {

// ", optimizer on host, 50 % of activations on host", ", 100 % of qkv+mlp-up on host"; "" when all
// stays on the device.
std::string offload_text(const Offload& offload);

}  // namespace orrery::plan
