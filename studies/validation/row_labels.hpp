// SPDX-License-Identifier: Apache-2.0
// What a training row is compared with: the group of plans it ranks in, the network and GPU whose
// times it is in proportion with, and its plan in words.
#pragma once

#include "plan/plan.hpp"
#include "studies/rows/measurement.hpp"
#include "studies/validation/validation.hpp"

namespace orrery::studies {

// Fills subject, plan, kind, groups, GPU and FLOPs of a row; `plan` is what it is simulated as.
void label_row(const Measurement& row, const plan::Plan& plan, RowResult& result);

}  // namespace orrery::studies
