// SPDX-License-Identifier: Apache-2.0
// Tensors that a row says leave the device: "offload 10% of activations to host" beside its
// recomputation, "optimizer states offloaded to CPU" in its notes, "ZeRO-Infinity" as its
// framework.
#pragma once

#include "plan/offload.hpp"
#include "studies/rows/measurement.hpp"

namespace orrery::studies {

plan::Offload stated_offload(const Measurement& row);

}  // namespace orrery::studies
