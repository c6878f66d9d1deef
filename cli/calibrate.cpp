// SPDX-License-Identifier: Apache-2.0

#include "cli/command/command.hpp"
#include "cli/command/command_line.hpp"

namespace orrery::cli {
namespace {

constexpr const char* kCalibrateExamples = R"(
Examples:
  orrery calibrate gpu --output samples.json         time the kernels of training on this GPU
  orrery calibrate nccl --output nccl.json           time NCCL on the groups of plans
  orrery calibrate fit samples.json --gpu h100-sxm5-80gb -o h100.json
  orrery calibrate gpu --help                        the options of a sub-command)";

}  // namespace

void add_calibrate(const Command& app, Action& chosen) {
  const Command command =
      app.add_subcommand("calibrate", "measure GPUs, or fit profiles from samples");
  command.footer(kCalibrateExamples);
  command.require_subcommand();
  for (const auto add :
       {add_calibrate_gpu, add_calibrate_nccl, add_calibrate_fit, add_calibrate_collectives}) {
    add(command, chosen);
  }
}

}  // namespace orrery::cli
