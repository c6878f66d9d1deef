// SPDX-License-Identifier: Apache-2.0
// The sub-commands of `orrery`: one .cpp file and one add_ function each, which declares the
// options and sets `chosen` when the command line names it. An action returns an exit code and
// throws Error for bad input.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace orrery::cli {

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

void add_plan(CLI::App& app, Action& chosen);
void add_planner(CLI::App& app, Action& chosen);
void add_reproduce(CLI::App& app, Action& chosen);
void add_simulate(CLI::App& app, Action& chosen);
void add_compare(CLI::App& app, Action& chosen);
void add_validate(CLI::App& app, Action& chosen);
void add_whatif(CLI::App& app, Action& chosen);
void add_export(CLI::App& app, Action& chosen);
void add_import(CLI::App& app, Action& chosen);
void add_schedule(CLI::App& app, Action& chosen);
void add_show(CLI::App& app, Action& chosen);
void add_list(CLI::App& app, Action& chosen);
void add_generate(CLI::App& app, Action& chosen);
void add_calibrate(CLI::App& app, Action& chosen);

// Below `orrery calibrate`.
void add_calibrate_gpu(CLI::App& app, Action& chosen);
void add_calibrate_nccl(CLI::App& app, Action& chosen);
void add_calibrate_fit(CLI::App& app, Action& chosen);
void add_calibrate_collectives(CLI::App& app, Action& chosen);

}  // namespace orrery::cli
