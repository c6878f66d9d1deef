// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/packed.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "base/files.hpp"
#include "base/json.hpp"
#include "base/json_reader.hpp"
#include "base/limits.hpp"
#include "base/quantity_text.hpp"
#include "base/text.hpp"
#include "cli/command/command_line.hpp"
#include "cli/command/common.hpp"
#include "cli/command/together.hpp"
#include "plan/packs.hpp"
#include "plan/schedule_traits.hpp"
#include "sim/schedule.hpp"

namespace orrery::cli {
namespace {

constexpr std::int64_t kMaxFile = 16 << 20;
constexpr std::size_t kMaxSequences = 4096;

bool runs_packs(const std::string& schedule) {
  const auto table = sim::schedule_table();
  return std::any_of(table.begin(), table.end(), [&](const sim::Schedule* one) {
    return one->traits.packs_sequences && one->name == schedule;
  });
}

// In a pipeline.
bool runs_any_length(const std::string& schedule) {
  const sim::Schedule& named = sim::find_schedule(schedule, "--schedule");
  return named.in_plans && plan::runs_units_of_any_length(plan::schedule_traits(named));
}

std::vector<std::int64_t> listed_lengths(const std::string& text, const std::string& path) {
  const Json list = parse_json(text, path);
  std::vector<std::int64_t> lengths;
  for (const JsonReader& length : JsonReader(list, path).array()) {
    lengths.push_back(length.integer(1, limits::kMaxSequence));
  }
  return lengths;
}

// Numbers between spaces, commas and ends of lines.
std::vector<std::int64_t> written_lengths(const std::string& text, const std::string& path) {
  constexpr std::string_view kBetween = " ,\t\r\n";
  std::vector<std::int64_t> lengths;
  int number = 0;
  for (const std::string_view line : split(text, '\n')) {
    const std::string where = fmt::format("{}:{}", path, ++number);
    for (std::size_t at = line.find_first_not_of(kBetween); at != line.npos;) {
      const std::size_t end = std::min(line.find_first_of(kBetween, at), line.size());
      lengths.push_back(parse_integer(line.substr(at, end - at), where, 1, limits::kMaxSequence));
      at = line.find_first_not_of(kBetween, end);
    }
  }
  return lengths;
}

}  // namespace

void add_lengths_option(const Command& command, std::string& lengths) {
  command.add_option("--lengths", lengths,
                     "file with the tokens of every sequence of a batch, for --schedule flexsp, "
                     "dynapipe or another that runs them: a JSON list or numbers");
}

void check_lengths(const PlanOptions& options) {
  const std::vector<std::string> named = search_options(options).constraints.named_schedules();
  const bool packs = std::any_of(named.begin(), named.end(), runs_packs);
  if (options.lengths.empty()) {
    if (packs) {
      bad_input("--schedule",
                "\"flexsp\" runs packs of sequences of different length, which are not known",
                "state them with --lengths FILE");
    }
    return;
  }
  if (named.size() != 1 || !(packs || runs_any_length(named.front()))) {
    bad_input("--lengths",
              "sequences of different length run in packs of schedule \"flexsp\", or as "
              "micro-batches of a pipeline with whole backwards",
              "add --schedule flexsp or --schedule dynapipe, and no other schedule");
  }
  refuse_together({"--lengths", true}, {{"--batch", !options.batch.empty()},
                                        {"--seq", !options.sequence.empty()},
                                        {"--like", !options.like.empty()},
                                        {"--pareto", !options.pareto.against.empty()},
                                        {"--robust", options.doubt.robust},
                                        {"--sensitivity", options.doubt.sensitivity},
                                        {"--space per-block", options.space == "per-block"}});
  check_checkpoints_alone(options.scale, "--lengths");
}

std::vector<std::int64_t> read_lengths(const std::string& path) {
  const std::string text = read_file(path, kMaxFile);
  const std::vector<std::int64_t> lengths =
      trim(text).starts_with("[") ? listed_lengths(text, path) : written_lengths(text, path);
  if (lengths.empty() || lengths.size() > kMaxSequences) {
    bad_input(path, fmt::format("{} sequences; a batch has 1 to {}", lengths.size(), kMaxSequences),
              "one number for each sequence");
  }
  return lengths;
}

void tell_lengths(const std::vector<std::int64_t>& lengths, PlanOptions& options) {
  options.batch = fmt::format("{}", lengths.size());
  options.sequence = fmt::format("{}", *std::max_element(lengths.begin(), lengths.end()));
}

}  // namespace orrery::cli
