// SPDX-License-Identifier: Apache-2.0
// Limited searches that papers compare with: what each would have chosen for a problem, so that the
// choice can be simulated beside the best plan of the whole space. Most are restrictions of the
// space, in terms of --fix and --forbid, of which the fastest plan is taken: micro-batch,
// recomputation, schedule and whatever else a restriction leaves open are decided as Orrery decides
// them, so that its loss is that of the restriction alone. The others choose by a rule of their own
// and are simulated afterwards.
// One file in search/baselines/ defines one constant `baseline_<file name>`. Deterministic.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "search/nearest_parts.hpp"
#include "search/tree/search.hpp"

namespace orrery::search {

struct BaselineChoice {
  std::optional<Found> found;  // simulated; `does_not_fit` says when it exceeds the memory
  std::int64_t plans = 0;      // among which it chose
  std::string note;            // why there is none, or what decided
};

struct Baseline {
  std::string_view name;         // as on the command line
  std::string_view description;  // one line: what it may choose, and how it does
  std::string_view source;
  std::string_view fix = "";     // fields, as --fix takes them
  std::string_view forbid = "";  // as --forbid
  // Null: the fastest plan of the restricted space. `options` hold the restriction.
  BaselineChoice (*choose)(const plan::Plan& base, const Options& options) = nullptr;
};

std::span<const Baseline* const> baseline_table();  // generated; sorted by file name
// By name, each once, in the order of the table; "all" stands for all. Error with the nearest name
// when unknown.
std::vector<const Baseline*> find_baselines(const std::vector<std::string>& names,
                                            std::string_view where);

// What the baseline chooses under the constraints of `options` and its own. A restriction that
// leaves no plan is a choice without plan, with the reason as its note.
BaselineChoice choose(const Baseline& baseline, const plan::Plan& base, const Options& options);

// For rules that look at plans one after the other: says where time was up before the last.
void note_end(const Deadline& deadline, BaselineChoice& choice);

// For rules: the fastest plan within `fix` as well; nothing when there is none.
BaselineChoice fastest_within(const plan::Plan& base, Options options, std::string_view fix);

}  // namespace orrery::search
