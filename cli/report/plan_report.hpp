// SPDX-License-Identifier: Apache-2.0
// The outcome of a search as text and JSON. Neither text nor documents depend on the number of
// threads or the clock; only search_time_s of the JSON does.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.hpp"
#include "search/nearest_change.hpp"
#include "search/tree/search.hpp"

namespace orrery::cli {

std::string progress_text(const search::ProgressReport& report);
// What is known of the plans listed below the best one, and of those that are not listed; nothing
// where all are known. `proven`: that none of these is faster than the last one listed; `closed`:
// that none is faster than the best. `can_prove`: --prove-top is there to ask for.
std::string others_text(bool all_known, bool proven, bool closed, bool can_prove);
// The best plans as a table and the proof.
std::string outcome_text(const search::Outcome& outcome);
// `apart`: the search over asynchronous schedules, if there was one.
Json outcome_json(const search::Outcome& outcome, const search::Outcome* apart = nullptr);
// When no plan was found. `plans`: how many there are, in words; `proven`: it is known of all.
std::string nothing_text(const search::Outcome& outcome, const plan::Plan& base);
std::string nothing_text(const search::Outcome& outcome, const plan::Plan& base,
                         const std::string& plans, bool proven);
// What the closest plan lacks, a line for each part of `overflow`, which semicolons separate;
// nothing where no plan was tried.
std::string closest_text(std::string_view overflow);
Json nothing_json(const search::Outcome& outcome, const search::NearestChanges& changes);
// What would make it feasible, a line each; empty without changes.
std::string changes_text(const search::NearestChanges& changes);
// The same of changes in words, "\n  CHANGE: PLAN" each.
std::string changes_text(const std::string& lines, const std::vector<std::string>& left_open);
Json left_open_json(const std::vector<std::string>& left_open);

}  // namespace orrery::cli
