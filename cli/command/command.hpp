// SPDX-License-Identifier: Apache-2.0
// The sub-commands of `orrery`: one .cpp file and one add_ function each, which declares the
// options and sets `chosen` when the command line names it. An action returns an exit code and
// throws Error for bad input.
#pragma once

#include <functional>

namespace orrery::cli {

class Command;

enum ExitCode : int {
  kOk = 0,
  kBug = 1,
  kBadInput = 2,
  kInfeasible = 3,
  kInputOutput = 4,
  kDeviceMissing = 5,
  kInterrupted = 130,
};

using Action = std::function<int()>;

void add_plan(const Command& app, Action& chosen);
void add_planner(const Command& app, Action& chosen);
void add_reproduce(const Command& app, Action& chosen);
void add_simulate(const Command& app, Action& chosen);
void add_compare(const Command& app, Action& chosen);
void add_validate(const Command& app, Action& chosen);
void add_whatif(const Command& app, Action& chosen);
void add_export(const Command& app, Action& chosen);
void add_import(const Command& app, Action& chosen);
void add_schedule(const Command& app, Action& chosen);
void add_show(const Command& app, Action& chosen);
void add_list(const Command& app, Action& chosen);
void add_generate(const Command& app, Action& chosen);
void add_calibrate(const Command& app, Action& chosen);

// Below `orrery calibrate`.
void add_calibrate_gpu(const Command& app, Action& chosen);
void add_calibrate_nccl(const Command& app, Action& chosen);
void add_calibrate_fit(const Command& app, Action& chosen);
void add_calibrate_collectives(const Command& app, Action& chosen);

}  // namespace orrery::cli
