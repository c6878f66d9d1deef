// SPDX-License-Identifier: Apache-2.0
// Published planners: each decides something before anything is simulated - where to cut a chain of
// layers into stages, how to slice sequences, how to group micro-batches - by its paper's own
// algorithm and cost model. One file in search/planners/ defines one constant
// `planner_<file name>`; `orrery planner NAME PROBLEM.json` runs it. Problem and answer are JSON,
// so that headline studies and users' scripts call every planner the same way.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/json.hpp"
#include "base/json_reader.hpp"

namespace orrery::search {

struct Planner {
  std::string_view name;         // kebab-case, as on the command line
  std::string_view description;  // one line: what it decides and minimises
  std::string_view source;       // paper and section, or official code
  std::string_view example;      // a small problem that it accepts
  // Times in the answer are seconds (`_s`), sizes bytes (`_bytes`). Errors: a malformed problem
  // (file and pointer). "feasible": false with "reason" where nothing fits. Everything is read, and
  // finish() called on the problem, before anything is solved.
  Json (*plan)(ObjectReader& problem);
};

std::span<const Planner* const> planner_table();  // generated; sorted by name
// By name; Error with the nearest name when unknown. `where` is cited.
const Planner& find_planner(std::string_view name, std::string_view where);
// Reads "schema": "orrery-problem" and runs the planner; unknown keys are errors.
Json run_planner(const Planner& planner, const Json& problem, const std::string& name);
// {"feasible": false, "reason": ...}
Json infeasible(std::string reason);

}  // namespace orrery::search
