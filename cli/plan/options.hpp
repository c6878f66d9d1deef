// SPDX-License-Identifier: Apache-2.0
// What `orrery plan` is told, as written on the command line, and what it means to the search.
#pragma once

#include <string>
#include <vector>

#include "base/error.hpp"
#include "cli/command/common.hpp"
#include "cli/plan/doubt.hpp"
#include "cli/plan/pareto.hpp"
#include "cli/plan/scale.hpp"
#include "cli/plan/serve.hpp"
#include "search/problem.hpp"
#include "search/tree/search.hpp"

namespace orrery::cli {

class Command;

struct PlanOptions {
  std::string network;
  std::string cluster;
  std::string batch;
  std::string sequence;
  std::string lengths;  // of the sequences of a batch, a file
  std::string precision;
  std::string profile;
  std::string space = "homogeneous";
  std::string jobs = "0";
  std::string time_limit;
  std::string gap = "0";
  std::string top = "5";
  bool prove_top = false;
  std::string memory_reserve;
  std::vector<std::string> restrict_files;
  std::vector<std::string> fix;
  std::vector<std::string> forbid;
  std::vector<std::string> allow;
  std::vector<std::string> schedules;
  std::vector<std::string> settings;
  std::vector<std::string> like;
  ParetoOptions pareto;
  DoubtOptions doubt;
  std::string plan_path;
  std::string trace_path;
  std::string report_path;
  ScaleOptions scale;
  ServeOptions serve;
  OutputOptions output;
};

// Which plans are searched, and of what: --space, --fix and the like.
void add_space_options(const Command& command, PlanOptions& options);

// When the search ends, and with how many plans: --top, --gap and the like.
void add_end_options(const Command& command, PlanOptions& options);

// Sorts the options of the help by what they are for. Call it when all are declared.
void group_plan_options(const Command& command);

// Error (bad input) naming options that do not go together, or not alone.
void check_together(const PlanOptions& options);

// Error where --batch is missing, or the file of the network does not say what it is.
void check_batch(const PlanOptions& options);

// The files that the question names, and those that documents among them name.
std::vector<std::string> files_read(const PlanOptions& options);

// Error (bad input) naming the option that cannot be read.
search::Problem problem_of(const PlanOptions& options);
search::Options search_options(const PlanOptions& options);
// With --restrict: which restrictions of the space are whose, and their list.
std::string restrictions_text(const search::Constraints& constraints);
Json restrictions_json(const search::Constraints& constraints);
// A remark where the profile was measured on another GPU than the cluster's.
std::vector<std::string> foreign_profile(const plan::Plan& base);

// "gpt3-175b on dgx-a100:128".
std::string question_text(const PlanOptions& options);

// Errors of a simulation have no place of their own: they are about the question.
template <class Action>
auto asked(const PlanOptions& options, const Action& action) {
  try {
    return action();
  } catch (const Error& error) {
    if (!error.where().empty()) {
      throw;
    }
    throw error.in_file(question_text(options));
  }
}

}  // namespace orrery::cli
