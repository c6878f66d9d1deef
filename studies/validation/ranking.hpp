// SPDX-License-Identifier: Apache-2.0
// Order and proportion of plans, predicted against measured, and the naive baseline. A planner
// lives by ranking: an error that all plans share costs it nothing. O(n log n) in the rows.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "studies/validation/validation.hpp"

namespace orrery::studies {

// (predicted, measured) of a plan.
using PlanTimes = std::pair<double, double>;

// Kendall's tau-b of the two orders, ties counted out; no value when either side is constant.
std::optional<double> kendall_tau(std::vector<PlanTimes> plans);

// Measured time of the plan predicted best over the best measured time, minus 1; plans predicted
// equal are as good as their mean. At least one plan.
double first_choice_regret(const std::vector<PlanTimes>& plans);

// Rows of one plan count once, with their mean measured time.
Ranking rank_plans(const std::vector<const RowResult*>& rows);

// Errors of the ratio of two times of one network group: (predicted a / predicted b) over
// (measured a / measured b), as the factor above 1 minus 1. A run is paired with the
// kRatioNeighbours that follow it in its table; each run weighs the same within its source.
inline constexpr std::size_t kRatioNeighbours = 64;
ErrorSummary ratio_errors(const std::vector<const RowResult*>& rows);

// Rows as a planner without a model would predict them: FLOPs over one constant rate for each
// source and GPU type, the one with the least mean error on these rows (a weighted median).
std::vector<RowResult> baseline_rows(const std::vector<const RowResult*>& rows);

}  // namespace orrery::studies
