// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <memory>
#include <optional>

#include "base/error.hpp"
#include "base/files.hpp"
#include "base/limits.hpp"
#include "base/text.hpp"
#include "cli/command/command.hpp"
#include "cli/command/command_line.hpp"
#include "cli/command/common.hpp"
#include "cli/command/output_paths.hpp"
#include "cli/report/report.hpp"
#include "plan/document/plan_text.hpp"
#include "plan/importer.hpp"
#include "search/problem.hpp"

namespace orrery::cli {
namespace {

constexpr const char* kImportExamples = R"(
Scripts are parsed, never executed.

Examples:
  orrery import pretrain.sh --from megatron --cluster dgx-a100:16
  orrery import pretrain.sh --from megatron --cluster hgx-h100:8 --output my-plan.json)";

struct ImportOptions {
  std::string file;
  std::string format;
  std::string cluster;
  std::string network;
  std::vector<std::string> settings;
  std::string output_path;
  OutputOptions output;
};

// Data parallelism is what the cluster leaves, so a script of another size imports without error.
void note_other_size(const plan::Importer& importer, const std::string& text,
                     const ImportOptions& options, const topologies::Cluster& cluster) {
  const auto ranks = importer.launched_ranks == nullptr
                         ? std::nullopt
                         : importer.launched_ranks(text, options.file);
  if (ranks && *ranks != cluster.num_gpus() && !options.output.quiet) {
    note(fmt::format("orrery: {} starts {}, {} has {}: the plan is for the cluster", options.file,
                     counted(*ranks, "process", "processes"), cluster.name,
                     counted(cluster.num_gpus(), "GPU")));
  }
}

int run_import(ImportOptions options) {
  if (options.output_path.empty() && !options.output.json) {
    options.output_path = "plan.json";
  }
  check_outputs({{"--output", options.output_path}, json_path(options.output)},
                {options.file, options.cluster, options.network});
  const plan::Importer& importer = plan::find_importer(options.format);
  const search::Overrides overrides = search::split_overrides(options.settings);
  const topologies::Cluster cluster = topologies::load_cluster(options.cluster, overrides.cluster);
  std::optional<models::Network> network;
  if (!options.network.empty()) {
    network = models::load_network(options.network, overrides.network);
  } else if (!overrides.network.empty()) {
    bad_input(
        "--set",
        fmt::format("\"{}\" is no field of the cluster", printable(overrides.network.front())),
        "fields of a network can be set only with --network");
  }
  const std::string text = read_file(options.file, limits::kMaxConfigFileBytes);
  const plan::Plan plan = importer.read(text, options.file, cluster, network ? &*network : nullptr);
  plan::check_plan(plan, options.file);
  note_other_size(importer, text, options, cluster);
  const Json document = plan::to_json(plan);
  if (options.output.json) {
    print_json(document);
  } else {
    print(fmt::format("{}\n{}\n", subject_text(plan), plan::layout_text(plan)));
  }
  if (!options.output_path.empty()) {
    write_result(options.output_path, document.dump() + "\n", options.output);
  }
  return kOk;
}

}  // namespace

void add_import(const Command& app, Action& chosen) {
  auto options = std::make_shared<ImportOptions>();
  const Command command = app.add_subcommand("import", "a plan from somebody's launch script");
  command.footer(kImportExamples);
  command.add_option("FILE", options->file, "script or configuration").required();
  command.add_option("--from", options->format, "a name of `orrery list importers`").required();
  command.add_option("--cluster", options->cluster, "NODE:COUNT, cluster name or JSON file")
      .required();
  command.add_option("--network", options->network, "when the file does not describe it");
  command.add_option("--set", options->settings, "override a field: path=value (repeatable)")
      .one_value_each();
  command.add_option("-o,--output", options->output_path, "plan document (plan.json)");
  add_output_options(command, options->output);
  command.callback([options, &chosen] { chosen = [options] { return run_import(*options); }; });
}

}  // namespace orrery::cli
