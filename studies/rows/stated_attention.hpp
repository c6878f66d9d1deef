// SPDX-License-Identifier: Apache-2.0
// The attention kernel of a row: what its cell states, else what its framework runs on its GPU.
#pragma once

#include "plan/plan.hpp"
#include "studies/rows/framework_facts.hpp"
#include "studies/rows/measurement.hpp"

namespace orrery::studies {

void apply_attention(const Measurement& row, const FrameworkFacts& framework,
                     plan::Execution& execution);

}  // namespace orrery::studies
