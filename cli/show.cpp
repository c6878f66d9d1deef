// SPDX-License-Identifier: Apache-2.0
#include "cli/show/show.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "base/error.hpp"
#include "base/text.hpp"
#include "cli/command/command.hpp"
#include "cli/command/command_line.hpp"
#include "cli/command/common.hpp"
#include "cli/command/output_paths.hpp"

namespace orrery::cli {
namespace {

constexpr const char* kShowExamples = R"(
Examples:
  orrery show network llama3-70b
  orrery show cluster dgx-a100:128 --set fabric.oversubscription=2
  orrery show cluster hgx-h100:8 --svg cluster.svg
  orrery show gpu h100-sxm5-80gb
  orrery show schedule interleaved
  orrery show layout plan.json
  orrery show profile a100-sxm4-80gb --json)";

struct Kind {
  const char* name;
  Shown (*show)(const ShowRequest&);
  bool has_settings;
  bool has_picture;
};
constexpr Kind kKinds[] = {
    {"network", show_network, true, true}, {"cluster", show_cluster, true, true},
    {"gpu", show_gpu, false, false},       {"profile", show_profile, false, false},
    {"layout", show_layout, false, false}, {"schedule", show_schedule, false, false}};

struct ShowOptions {
  std::string kind;
  ShowRequest request;
  std::string svg_path;
  OutputOptions output;
};

const Kind& find_kind(const std::string& name) {
  std::vector<std::string> names;
  for (const Kind& kind : kKinds) {
    if (name == kind.name) {
      return kind;
    }
    names.emplace_back(kind.name);
  }
  bad_input("show", fmt::format("unknown kind \"{}\"", printable(name)), nearest_hint(name, names));
}

int run_show(ShowOptions options) {
  const Kind& kind = find_kind(options.kind);
  if (options.request.name.empty()) {
    bad_input("show", "NAME is required", fmt::format("orrery show {} NAME", kind.name));
  }
  if (!kind.has_settings && !options.request.settings.empty()) {
    bad_input("--set", fmt::format("a {} has no fields to override here", kind.name));
  }
  if (!kind.has_picture && !options.svg_path.empty()) {
    bad_input("--svg", fmt::format("a {} has no picture", kind.name),
              "a network and a cluster have; `orrery schedule NAME --svg` draws schedules");
  }
  check_outputs({{"--svg", options.svg_path}, json_path(options.output)}, {options.request.name});
  options.request.picture = !options.svg_path.empty();
  options.request.color = wants_color(options.output);
  const Shown shown = kind.show(options.request);
  if (options.output.json) {
    print_json(shown.json);
  } else {
    print(shown.text);
  }
  if (!options.svg_path.empty()) {
    write_result(options.svg_path, shown.svg, options.output);
  }
  return kOk;
}

}  // namespace

void add_show(const Command& app, Action& chosen) {
  auto options = std::make_shared<ShowOptions>();
  const Command command = app.add_subcommand(
      "show", "what a network, cluster, gpu, profile, schedule or plan's layout is");
  command.footer(kShowExamples);
  command.add_option("KIND", options->kind, "network, cluster, gpu, profile, layout or schedule")
      .required();
  // Required, but an unknown KIND is said first.
  command.add_option("NAME", options->request.name,
                     "name, or file where one is possible; required");
  command
      .add_option("--set", options->request.settings, "override a field: path=value (repeatable)")
      .one_value_each();
  command.add_option("--svg", options->svg_path,
                     "write a picture of the network's blocks or of the cluster's levels");
  add_output_options(command, options->output);
  command.callback([options, &chosen] { chosen = [options] { return run_show(*options); }; });
}

}  // namespace orrery::cli
