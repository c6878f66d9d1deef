// SPDX-License-Identifier: Apache-2.0
// Operators of PyTorch by name, shapes and types of their inputs -> what their kernels compute.
// Argument positions are those of the operators' schemas
// (aten/src/ATen/native/native_functions.yaml of PyTorch 2).
#pragma once

#include <optional>
#include <string_view>

#include "calibrate/samples.hpp"
#include "calibrate/trace_events.hpp"

namespace orrery::calibrate {

// mm, addmm, bmm, fused attention forward and backward; nullopt for everything else, and where the
// trace does not say enough (shapes not recorded, unknown number formats, causality).
std::optional<Shape> torch_shape(const TraceEvent& event);

// Bytes of an element of a type as c10d names it ("BFloat16", "Float", "Byte"); 0: unknown.
std::int64_t torch_element_bytes(std::string_view dtype);
// A collective kernel with its sizes as nccl-tests counts them; ranks_per_node and nodes are left
// at one node. nullopt when it is none.
std::optional<CollectiveSample> torch_collective(const TraceEvent& event);

}  // namespace orrery::calibrate
