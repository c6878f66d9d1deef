// SPDX-License-Identifier: Apache-2.0
// The attention kernel of a row: what its cell states, else what its framework runs on its GPU.
#pragma once

#include <string>

#include "plan/plan.hpp"
#include "studies/rows/framework_facts.hpp"
#include "studies/rows/measurement.hpp"

namespace orrery::studies {

// Words in lower case for two products with softmax between them; "FA2 (not eager)" denies them.
// Megatron's fused softmax is a kernel between two products.
bool names_unfused_attention(const std::string& words);

void apply_attention(const Measurement& row, const FrameworkFacts& framework,
                     plan::Execution& execution);

}  // namespace orrery::studies
