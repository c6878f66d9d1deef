// SPDX-License-Identifier: Apache-2.0
// The outcome of a search over the per-block space as text and JSON: the plans with the blocks of
// each strategy in words, and the certificate. Like plan_report.hpp it does not depend on the
// number of threads or the clock but for search_time_s.
#pragma once

#include <string>
#include <vector>

#include "base/json.hpp"
#include "search/per_block/search.hpp"

namespace orrery::cli {

// What a proof per block leaves out, a line; nothing where it holds for every schedule. `hint`:
// which one to name.
std::string unproven_text(const std::vector<std::string>& schedules, const std::string& hint = "");
// "#2 stages 13 12": the cut of the plan of a row of a table, and the blocks of each strategy.
std::string blocks_text(std::size_t rank, const plan::Plan& plan);
std::string per_block_text(const search::PerBlockOutcome& outcome);
// When no plan was found.
std::string per_block_nothing_text(const search::PerBlockOutcome& outcome, const plan::Plan& base);
// plans (a number below 2^63, else text such as "3.1e+187"), log10_plans, meshes, pipelines,
// drafted, simulated, unproven_schedules (names; of them the certificate says something of plans
// with one layout alone).
Json per_block_space_json(const search::PerBlockOutcome& outcome);
// As outcome_json, with that `space`; `homogeneous_time_s` and `blocks`, the strategies in words.
Json per_block_json(const search::PerBlockOutcome& outcome);

}  // namespace orrery::cli
