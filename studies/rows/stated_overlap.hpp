// SPDX-License-Identifier: Apache-2.0
// What runs beside what, in the words of a row.
#pragma once

#include <string>
#include <vector>

#include "plan/plan.hpp"
#include "studies/rows/framework_facts.hpp"
#include "studies/rows/measurement.hpp"

namespace orrery::studies {

// Changes what the `overlap` column states. "None" is of gradients, parameters, messages and
// streamed tensor parallelism; the all-reduce of a backward beside its weight gradients is the
// framework's own unless a clause names it.
void apply_overlap(const Measurement& row, const FrameworkFacts& framework,
                   plan::Execution& execution);

// What the column says that nobody knows, a line each: it changes nothing.
std::vector<std::string> unread_overlap(const Measurement& row);

}  // namespace orrery::studies
