// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <memory>

#include "base/error.hpp"
#include "cli/command.hpp"
#include "cli/common.hpp"

namespace orrery::cli {
namespace {

struct GpuCommandOptions {
  std::string output = "samples.json";
  OutputOptions common;
};

int run_gpu(const GpuCommandOptions& options) {
  check_writable(options.output);
  throw Error(ErrorKind::DeviceMissing, "calibrate gpu", "this build measures no GPU");
}

}  // namespace

void add_calibrate_gpu(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<GpuCommandOptions>();
  CLI::App* command = app.add_subcommand("gpu", "time the kernels of training on this GPU");
  command->add_option("-o,--output", options->output, "sample file to write");
  add_output_options(*command, options->common);
  command->callback([options, &chosen] { chosen = [options] { return run_gpu(*options); }; });
}

}  // namespace orrery::cli
