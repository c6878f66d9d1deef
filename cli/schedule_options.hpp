// SPDX-License-Identifier: Apache-2.0
// What `orrery schedule` is told, as written on the command line.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/command/common.hpp"

namespace orrery::cli {

class Command;

// Empty where not given: what is meant then stands in the help.
struct ScheduleOptions {
  std::string name;
  std::string stages;
  std::string micro_batches;
  std::string chunks;  // empty: the fewest that make it a schedule of its own
  std::string forward;
  std::string input_grad;
  std::string weight_grad;
  std::string latency;
  std::string prediction;
  std::string width;  // empty: the terminal's
  std::string warm_up;
  std::string slices;  // empty: 1, on plans those of the plan or one a stage
  std::string replicas;
  std::string iterations;
  std::string rollbacks;
  std::string cap;  // empty: the schedule's own
  std::string svg;
  std::string trace;
  std::string plan_path;
  std::string costs;
  std::vector<std::string> compared;
  OutputOptions output;
};

// A whole number from 1 to max; else an Error that names the option.
int integer_option(const std::string& text, const char* name, std::int64_t max);
inline constexpr const char* kCapOption = "--cap";
// Micro-batches of --cap, at least 1; 0 where it is not given.
double cap_of(const ScheduleOptions& options);

// Whether a schedule's name is that of a file.
bool is_document(const std::string& name);
// A name that only the plan of --plan can know: of the document that it holds.
bool may_be_of_plan(const std::string& name, const ScheduleOptions& options);

void add_schedule_options(const Command& command, ScheduleOptions& options);

// Error for options that would have no effect beside others or on the schedules named, which is
// never ignored.
void check_schedule_options(const ScheduleOptions& options);

}  // namespace orrery::cli
