// SPDX-License-Identifier: Apache-2.0
#include "cli/plan_packed.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "base/files.hpp"
#include "base/limits.hpp"
#include "base/quantity_text.hpp"
#include "cli/command_line.hpp"
#include "cli/common.hpp"
#include "cli/together.hpp"
#include "sim/schedule.hpp"

namespace orrery::cli {
namespace {

constexpr std::int64_t kMaxFile = 16 << 20;
constexpr std::size_t kMaxSequences = 4096;

bool runs_packs(const std::string& schedule) {
  const auto table = sim::schedule_table();
  return std::any_of(table.begin(), table.end(), [&](const sim::Schedule* one) {
    return one->packs_sequences && one->name == schedule;
  });
}

}  // namespace

void add_lengths_option(const Command& command, std::string& lengths) {
  command.add_option("--lengths", lengths,
                     "file with the tokens of every sequence of a batch, for --schedule flexsp: a "
                     "JSON list or numbers");
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
  if (!packs || named.size() > 1) {
    bad_input("--lengths", "sequences of different length are packed by schedule \"flexsp\"",
              "add --schedule flexsp, and no other schedule");
  }
  refuse_together({"--lengths", true}, {{"--batch", !options.batch.empty()},
                                        {"--seq", !options.sequence.empty()},
                                        {"--serve", !options.serve.requests.empty()},
                                        {"--like", !options.like.empty()},
                                        {"--pareto", !options.pareto.against.empty()},
                                        {"--robust", options.doubt.robust},
                                        {"--sensitivity", options.doubt.sensitivity},
                                        {"--space per-block", options.space == "per-block"}});
  check_unused(options.scale);
}

std::vector<std::int64_t> read_lengths(const std::string& path) {
  std::string text = read_file(path, kMaxFile);
  for (char& letter : text) {
    const bool apart = letter == '[' || letter == ']' || letter == ',' || letter == '\n' ||
                       letter == '\r' || letter == '\t';
    letter = apart ? ' ' : letter;
  }
  std::vector<std::int64_t> lengths;
  for (std::size_t at = text.find_first_not_of(' '); at != std::string::npos;) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    lengths.push_back(
        parse_integer(text.substr(at, end - at), "--lengths", 1, limits::kMaxSequence));
    at = text.find_first_not_of(' ', end);
  }
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
