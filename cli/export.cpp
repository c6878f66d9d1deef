// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <memory>

#include "base/error.hpp"
#include "cli/command/command.hpp"
#include "cli/command/command_line.hpp"
#include "cli/command/common.hpp"
#include "cli/command/output_paths.hpp"
#include "plan/document/untold.hpp"
#include "plan/exporter.hpp"

namespace orrery::cli {
namespace {

constexpr const char* kExportExamples = R"(
Examples:
  orrery export plan.json --to megatron
  orrery export plan.json --to megatron --output arguments.txt)";

struct ExportOptions {
  std::string plan_path;
  std::string format;
  std::string output_path;
  OutputOptions output;
};

int run_export(const ExportOptions& options) {
  const plan::Exporter& exporter = plan::find_exporter(options.format);
  check_outputs({{"--output", options.output_path}, json_path(options.output)},
                {options.plan_path});
  const plan::Plan plan = load_training_plan_of(options.plan_path);
  const std::string text =
      in_file(options.plan_path, [&] { return plan::export_plan(exporter, plan); });
  std::vector<std::string> remarks;
  for (const std::string& field : plan::untold(exporter, plan)) {
    remarks.push_back(
        fmt::format("orrery: {} is not told {}: it decides that itself", exporter.name, field));
  }
  if (exporter.script != nullptr) {
    for (const std::string& duty : exporter.script(plan)) {
      remarks.push_back(fmt::format("orrery: {}: {}", exporter.name, duty));
    }
  }
  note_all(remarks, options.output);
  if (!options.output_path.empty()) {
    write_result(options.output_path, text, options.output);
  }
  if (options.output.json) {
    print_json(Json::Object{{"format", exporter.name}, {"text", text}});
  } else if (options.output_path.empty()) {
    print(text);
  }
  return kOk;
}

}  // namespace

void add_export(const Command& app, Action& chosen) {
  auto options = std::make_shared<ExportOptions>();
  const Command command =
      app.add_subcommand("export", "launch arguments of a framework from a plan");
  command.footer(kExportExamples);
  command.add_option("PLAN", options->plan_path, "plan document").required();
  command.add_option("--to", options->format, "a name of `orrery list exporters`").required();
  command.add_option("-o,--output", options->output_path, "file (standard output)");
  add_output_options(command, options->output);
  command.callback([options, &chosen] { chosen = [options] { return run_export(*options); }; });
}

}  // namespace orrery::cli
