// SPDX-License-Identifier: Apache-2.0
#include "cli/plan_options.hpp"

#include "base/limits.hpp"
#include "base/quantity_text.hpp"

namespace orrery::cli {

search::Problem problem_of(const PlanOptions& options) {
  search::Problem problem;
  problem.network = options.network;
  problem.cluster = options.cluster;
  problem.batch = parse_integer(options.batch, "--batch", 1, limits::kMaxBatch);
  problem.sequence = options.sequence.empty()
                         ? 0
                         : parse_integer(options.sequence, "--seq", 1, limits::kMaxSequence);
  problem.precision = options.precision;
  problem.profile = options.profile;
  problem.memory_reserve = options.memory_reserve;
  problem.settings = options.settings;
  return problem;
}

search::Options search_options(const PlanOptions& options) {
  search::Options result;
  for (const std::string& text : options.fix) {
    result.constraints.fix(text);
  }
  for (const std::string& text : options.schedules) {
    result.constraints.choose_schedule(text);
  }
  for (const std::string& text : options.forbid) {
    result.constraints.forbid(text);
  }
  for (const std::string& text : options.allow) {
    result.constraints.allow(text);
  }
  result.jobs = static_cast<int>(parse_integer(options.jobs, "--jobs", 0, limits::kMaxThreads));
  result.time_limit = parse_time(options.time_limit, "--time-limit");
  result.gap_fraction = parse_number(options.gap, "--gap", 0.0, 1.0);
  result.top = static_cast<int>(parse_integer(options.top, "--top", 1, 1000)) - 1;
  return result;
}

}  // namespace orrery::cli
