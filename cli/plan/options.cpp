// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/options.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <set>
#include <system_error>

#include "base/error.hpp"
#include "base/json.hpp"
#include "base/json_reader.hpp"
#include "base/limits.hpp"
#include "base/quantity_text.hpp"
#include "base/text.hpp"
#include "cli/command/command_line.hpp"
#include "cli/command/named_files.hpp"
#include "cli/command/together.hpp"
#include "models/config_import.hpp"
#include "search/space/restrictions.hpp"
#include "topologies/cluster.hpp"

namespace orrery::cli {

void add_space_options(const Command& command, PlanOptions& options) {
  command.add_option("--space", options.space, "plans to search: homogeneous, per-block")
      .one_of({"homogeneous", "per-block"});
  command
      .add_option("--restrict", options.restrict_files,
                  "JSON file of \"fix\", \"forbid\", \"schedule\" and \"allow\" (repeatable)")
      .one_value_each();
  command.add_option("--fix", options.fix, "pin fields: tp=8,pp=4,schedule=1f1b (repeatable)")
      .one_value_each();
  command
      .add_option("--forbid", options.forbid, "exclude values: zero=3,recompute=full (repeatable)")
      .one_value_each();
  command
      .add_option("--schedule", options.schedules,
                  "only these pipeline schedules: NAME, or a document FILE.json (repeatable)")
      .one_value_each();
  command
      .add_option("--allow", options.allow,
                  fmt::format("choices that are off by default: {}",
                              fmt::join(search::Constraints::choice_names(), ", ")))
      .one_value_each();
  command
      .add_option("--set", options.settings,
                  "override a field of network or cluster: path=value (repeatable)")
      .one_value_each();
}

void add_end_options(const Command& command, PlanOptions& options) {
  command.add_option("--top", options.top, "plans to print (5)");
  command.add_flag("--prove-top", options.prove_top,
                   "go on until no other plan is faster than the last one printed");
  command.add_option("--gap", options.gap,
                     "stop when no plan can be faster by more than this fraction (0)");
  command.add_option(
      "--time-limit", options.time_limit,
      "seconds, or with a unit: \"2 min\"; of --pareto that of each of its searches; where nothing "
      "fits what is left of it, at least 1 s, goes to the changes that are tried");
}

void group_plan_options(const Command& command) {
  struct Group {
    const char* title;
    std::initializer_list<const char*> options;
  };
  const std::initializer_list<Group> groups = {
      {"What is trained",
       {"--batch", "--seq", "--precision", "--set", "--profile", "--memory-reserve"}},
      {"What is served", {"--serve", "--max-first-token", "--max-output-token"}},
      {"Which plans are searched",
       {"--fix", "--forbid", "--schedule", "--allow", "--restrict", "--space", "--top",
        "--prove-top", "--gap", "--time-limit"}},
      {"What else is asked",
       {"--like", "--pareto", "--pareto-picture", "--robust", "--draws", "--seed", "--candidates",
        "--sensitivity"}},
      {"Long searches",
       {"--jobs", "--checkpoint", "--checkpoint-every", "--resume", "--mpi", "--project-ranks"}},
      {"Output", {"--output", "--trace", "--report", "--json", "--quiet", "--color"}}};
  for (const auto& [title, options] : groups) {
    for (const char* name : options) {
      command.group(name, title);
    }
  }
}

void check_together(const PlanOptions& options) {
  const Given like{"--like", !options.like.empty()};
  const Given pareto{"--pareto", !options.pareto.against.empty()};
  const Given robust{"--robust", options.doubt.robust};
  const Given sensitivity{"--sensitivity", options.doubt.sensitivity};
  const Given per_block{"--space per-block", options.space == "per-block"};
  refuse_together({"--serve", !options.serve.requests.empty()},
                  {like,
                   pareto,
                   robust,
                   sensitivity,
                   per_block,
                   {"--lengths", !options.lengths.empty()},
                   {"--restrict", !options.restrict_files.empty()}});
  (void)parse_integer(options.jobs, "--jobs", 0, limits::kMaxThreads);
  refuse_together({"--prove-top", options.prove_top}, {{"--serve", !options.serve.requests.empty()},
                                                       pareto,
                                                       per_block,
                                                       {"--lengths", !options.lengths.empty()},
                                                       {"--gap", options.gap != "0"}});
  refuse_together(pareto, {{"--top", options.top != PlanOptions().top},
                           like,
                           robust,
                           sensitivity,
                           {"--trace", !options.trace_path.empty()},
                           {"--report", !options.report_path.empty()}});
  refuse_alone({{"--pareto-picture", !options.pareto.picture_path.empty()}}, pareto);
  refuse_alone({{"--draws", !options.doubt.draws.empty()},
                {"--seed", !options.doubt.seed.empty()},
                {"--candidates", !options.doubt.candidates.empty()}},
               robust);
  check_doubt_options(options.doubt);
  refuse_alone({{"--max-first-token", !options.serve.first_token_limit.empty()},
                {"--max-output-token", !options.serve.output_token_limit.empty()}},
               {"--serve", !options.serve.requests.empty()});
}

// Of a document that is not known as a recommender: whether it was to be one.
void check_schema(const JsonReader& document) {
  constexpr std::string_view kHint =
      "\"orrery-network\", or \"orrery-recommender\", which has its own batch";
  ObjectReader object = document.object();
  object.ignore_rest();
  if (!object.has("schema")) {
    document.fail("missing key \"schema\"", kHint);
  }
  const JsonReader schema = object.required("schema");
  if (schema.string() != "orrery-network") {
    schema.fail(fmt::format("schema \"{}\"", printable(schema.string())), kHint);
  }
}

void check_batch(const PlanOptions& options) {
  if (!options.batch.empty()) {
    return;
  }
  std::error_code ignored;
  if (std::filesystem::is_regular_file(options.network, ignored)) {
    const Json document = read_json_file(options.network);
    if (!models::is_hugging_face_config(document)) {
      check_schema(JsonReader(document, options.network));
    }
  }
  bad_input("", "--batch is required", "see orrery plan --help");
}

std::string question_text(const PlanOptions& options) {
  return fmt::format("{} on {}", options.network, options.cluster);
}

search::Problem problem_of(const PlanOptions& options) {
  search::Problem problem;
  problem.network = options.network;
  problem.cluster = options.cluster;
  problem.batch = parse_integer(options.batch, "--batch", 1, limits::kMaxBatch);
  problem.sequence = options.sequence.empty()
                         ? 0
                         : parse_integer(options.sequence, "--seq", 1, limits::kMaxSequence);
  problem.sequence_from = options.lengths;
  problem.precision = options.precision;
  problem.profile = options.profile;
  problem.memory_reserve = options.memory_reserve;
  problem.settings = options.settings;
  return problem;
}

std::vector<std::string> files_read(const PlanOptions& options) {
  Json named = Json::Array{options.network,        options.cluster, options.profile,
                           options.serve.requests, options.lengths, options.scale.resume};
  for (const std::vector<std::string>* lists :
       {&options.schedules, &options.fix, &options.restrict_files}) {
    for (const std::string& list : *lists) {
      named.push(list);
    }
  }
  return named_files(named);
}

search::Options search_options(const PlanOptions& options) {
  search::Options result;
  result.space =
      options.space == "per-block" ? search::SpaceKind::PerBlock : search::SpaceKind::Homogeneous;
  std::set<std::filesystem::path> read;
  for (const std::string& path : options.restrict_files) {
    std::error_code none;  // reading it says why
    if (read.insert(std::filesystem::weakly_canonical(path, none)).second || none) {
      search::read_restrictions(path, result.constraints);
    }
  }
  for (const std::string& text : options.fix) {
    result.constraints.fix(text);
  }
  for (const std::string& text : options.schedules) {
    result.constraints.choose_schedule(text);
  }
  for (const std::string& text : options.forbid) {
    result.constraints.forbid(text);
  }
  for (const std::string& text : options.allow) {
    result.constraints.allow(text);
  }
  result.jobs = static_cast<int>(parse_integer(options.jobs, "--jobs", 0, limits::kMaxThreads));
  result.time_limit = parse_time_limit(options.time_limit);
  result.gap_fraction = parse_number(options.gap, "--gap", 0.0, 1.0);
  result.top = static_cast<int>(parse_integer(options.top, "--top", 1, 1000)) - 1;
  result.proves_top = options.prove_top;
  if (result.space == search::SpaceKind::PerBlock) {
    result.spare = std::max(0, compared_plans(options.doubt) - 1 - result.top);
  }
  return result;
}

std::string restrictions_text(const search::Constraints& constraints) {
  std::string text;
  std::string place;  // files are read before the command line
  for (const search::Restriction& one : constraints.restrictions()) {
    const std::string& its_place = one.file.empty() ? "the command line" : one.file;
    if (text.empty() && one.file.empty()) {
      return "";
    }
    text += its_place == place ? ", "
            : text.empty()     ? fmt::format("The space is restricted by {} (", its_place)
                               : fmt::format(") and {} (", its_place);
    text += one.kind + " " + one.text;
    place = its_place;
  }
  return text.empty() ? "" : text + ").\n";
}

Json restrictions_json(const search::Constraints& constraints) {
  Json list = Json::array();
  for (const search::Restriction& one : constraints.restrictions()) {
    list.push(Json::Object{{"kind", one.kind}, {"text", one.text}, {"from", one.from}});
  }
  return list;
}

std::vector<std::string> foreign_profile(const plan::Plan& base) {
  const std::string& measured = base.profile.name;
  const std::string& used = base.cluster.gpu.name;
  const std::vector<std::string> gpus = topologies::gpu_names();
  if (measured == used || std::find(gpus.begin(), gpus.end(), measured) == gpus.end()) {
    return {};
  }
  return {fmt::format("orrery: the profile is of {}: its shares of peak rates count for {}",
                      measured, used)};
}

}  // namespace orrery::cli
