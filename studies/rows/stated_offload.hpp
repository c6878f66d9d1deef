// SPDX-License-Identifier: Apache-2.0
// Tensors that a row says leave the device: "offload 10% of activations to host" beside its
// recomputation, "optimizer states offloaded to CPU" in its notes, "ZeRO-Infinity" as its
// framework.
#pragma once

#include <string>
#include <vector>

#include "plan/offload.hpp"
#include "studies/rows/measurement.hpp"

namespace orrery::studies {

plan::Offload stated_offload(const Measurement& row);

// Offload of a part of the states, which plans do not know, a line each.
std::vector<std::string> unread_offload(const Measurement& row);

}  // namespace orrery::studies
