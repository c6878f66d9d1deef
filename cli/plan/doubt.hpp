// SPDX-License-Identifier: Apache-2.0
// `orrery plan --robust` and `--sensitivity`: what the best plan's rank and time rest on.
#pragma once

#include <functional>
#include <string>

#include "base/json.hpp"
#include "search/problem.hpp"
#include "search/tree/search.hpp"

namespace orrery::cli {

class Command;

struct DoubtOptions {
  bool robust = false;
  bool sensitivity = false;
  std::string draws;  // these as given, empty for the default
  std::string seed;
  std::string candidates;
};
void add_doubt_options(const Command& command, DoubtOptions& options);
void check_doubt_options(const DoubtOptions& options);  // before a search that may take long
int compared_plans(const DoubtOptions& options);        // by --robust, at most

// What is left of a limit on time, at least a moment; 0: there is none.
Seconds left_of(Seconds limit, Seconds passed);

// What was asked for beside the outcome of a search that found a plan: text after its table, and
// members of its JSON; `text` is empty and `json` null when nothing was.
struct Doubts {
  std::string text;
  Json::Object json;
};
// `how` is that of the search, with the limit on time that it and what follows it have left.
Doubts doubts_of(const DoubtOptions& options, const search::Problem& problem,
                 const plan::Plan& base, search::Options how, const search::Outcome& outcome,
                 const std::function<void(const search::ProgressReport&)>& progress);

}  // namespace orrery::cli
