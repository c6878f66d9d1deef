// SPDX-License-Identifier: Apache-2.0
// Kernels of layers with experts, and of attention in eight bits, that a row's recipe brings and
// the row itself overrides.
#pragma once

#include "plan/plan.hpp"
#include "studies/rows/measurement.hpp"

namespace orrery::studies {

// Of all rows, with expert parallelism or without: fused products, router and attention, graphs,
// padding and how unevenly tokens are routed. After apply_dispatch.
void apply_expert_kernels(const Measurement& row, plan::Execution& execution);

}  // namespace orrery::studies
