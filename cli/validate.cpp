// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <memory>

#include "base/limits.hpp"
#include "base/quantity_text.hpp"
#include "cli/command.hpp"
#include "cli/common.hpp"
#include "studies/validation.hpp"

namespace orrery::cli {
namespace {

constexpr const char* kExamples = R"(
Examples:
  orrery validate measurements/*.csv
  orrery validate runs.csv --json --report errors.txt)";

struct ValidateOptions {
  std::vector<std::string> files;
  std::string jobs = "0";
  std::string worst = "10";
  std::string report_path;
  OutputOptions output;
};

int run_validate(const ValidateOptions& options) {
  check_writable(options.report_path);
  studies::ValidateOptions how;
  how.jobs = static_cast<int>(parse_integer(options.jobs, "--jobs", 0, limits::kMaxThreads));
  how.worst = static_cast<std::size_t>(parse_integer(options.worst, "--worst", 0, 100'000));
  const studies::Validation validation = studies::validate_files(options.files, how);
  if (options.output.json) {
    print_json(studies::to_json(validation));
  } else {
    print(studies::to_text(validation, how));
  }
  if (!options.report_path.empty()) {
    write_result(options.report_path, studies::to_text(validation, how), options.output);
  }
  return kOk;
}

}  // namespace

void add_validate(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<ValidateOptions>();
  CLI::App* command = app.add_subcommand("validate", "predicted against measured");
  command->footer(kExamples);
  command->add_option("FILE", options->files, "measurement files (CSV)")->required();
  command->add_option("--worst", options->worst, "rows to list with the largest errors (10)");
  command->add_option("-j,--jobs", options->jobs, "threads (all cores)");
  command->add_option("--report", options->report_path, "write the text as well");
  add_output_options(*command, options->output);
  command->callback([options, &chosen] { chosen = [options] { return run_validate(*options); }; });
}

}  // namespace orrery::cli
