// SPDX-License-Identifier: Apache-2.0
#include "search/planner.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <memory>

#include "base/error.hpp"
#include "base/text.hpp"
#include "cli/command/command.hpp"
#include "cli/command/command_line.hpp"
#include "cli/command/common.hpp"

namespace orrery::cli {
namespace {

constexpr const char* kPlannerExamples = R"(
Examples:
  orrery planner pipedream                     what it decides, with an example problem
  orrery planner pipedream --example > p.json
  orrery planner pipedream p.json              its answer)";

struct PlannerOptions {
  std::string name;
  std::string path;
  bool example = false;
  OutputOptions output;
};

// Of members called so and, within `bytes`, their elements: what a formula makes of a factor is no
// part of a byte.
void round_bytes(Json& answer, bool bytes = false) {
  if (answer.is_object()) {
    for (auto& [name, member] : answer.as_object()) {
      round_bytes(member, name.ends_with("bytes"));
    }
  } else if (answer.is_array()) {
    for (Json& element : answer.as_array()) {
      round_bytes(element, bytes);
    }
  } else if (bytes && answer.is_number() && answer.as_number() < 1e18) {
    answer = static_cast<std::int64_t>(std::llround(answer.as_number()));
  }
}

int run(const PlannerOptions& options) {
  const search::Planner& planner = search::find_planner(options.name, "planner");
  if (options.example && !options.path.empty()) {
    bad_input("--example", fmt::format("{} would not be read", printable(options.path)),
              "leave one of the two out");
  }
  if (options.example) {
    print(parse_json(planner.example, planner.name).dump() + "\n");
    return kOk;
  }
  if (options.path.empty() && options.output.json) {
    print_json(Json::Object{{"name", std::string(planner.name)},
                            {"description", std::string(planner.description)},
                            {"source", std::string(planner.source)},
                            {"example", parse_json(planner.example, planner.name)}});
    return kOk;
  }
  if (options.path.empty()) {
    print(fmt::format("{}: {}\nsource: {}\n\nA problem that it accepts:\n{}\n", planner.name,
                      planner.description, planner.source,
                      parse_json(planner.example, planner.name).dump()));
    return kOk;
  }
  Json answer = search::run_planner(planner, read_json_file(options.path), options.path);
  round_bytes(answer);
  print_json(answer);
  const Json* feasible = answer.find("feasible");
  return feasible != nullptr && !feasible->as_bool() ? kInfeasible : kOk;
}

}  // namespace

void add_planner(const Command& app, Action& chosen) {
  auto options = std::make_shared<PlannerOptions>();
  const Command command =
      app.add_subcommand("planner", "run a published planner on a problem of its own kind");
  command.footer(kPlannerExamples);
  command.add_option("NAME", options->name, "a name of `orrery list planners`").required();
  command.add_option("PROBLEM", options->path, "problem document (JSON)");
  command.add_flag("--example", options->example, "print only the example problem");
  add_output_options(command, options->output);
  command.callback([options, &chosen] { chosen = [options] { return run(*options); }; });
}

}  // namespace orrery::cli
