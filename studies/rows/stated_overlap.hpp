// SPDX-License-Identifier: Apache-2.0
// What runs beside what, in the words of a row.
#pragma once

#include <optional>
#include <string>
#include <string_view>
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

// The schedule whose forwards and backwards hide each other's exchanges between experts.
inline constexpr std::string_view kJoinedPasses = "combined-1f1b";

// Whether tokens travel to their experts beside kernels of another micro-batch; no value where the
// row does not say.
std::optional<bool> stated_hidden_exchanges(const Measurement& row);

// What the column says that nobody knows, a line each: it changes nothing.
std::vector<std::string> unread_overlap(const Measurement& row);

}  // namespace orrery::studies
