// SPDX-License-Identifier: Apache-2.0
#include "plan/launch_script/launched_ranks.hpp"

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <span>

#include "base/limits.hpp"
#include "plan/launch_script/shell_words.hpp"

namespace orrery::plan {
namespace {

using Names = std::initializer_list<std::string_view>;
using Words = std::span<const ShellWord>;

// The launcher and its own words: those before the program, which has words of its own.
Words before_program(const ShellCommand& command) {
  const auto program = std::ranges::find_if(
      command.words, [](const ShellWord& word) { return word.text.ends_with(".py"); });
  return program == command.words.end() ? Words() : Words(command.words.begin(), program);
}

// `--name value` or `--name=value`; the last one counts. nullptr where none is given.
const ShellWord* word_of(Words words, Names names, ShellWord& cut) {
  const ShellWord* found = nullptr;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::size_t equals = words[i].text.find('=');
    if (std::ranges::find(names, std::string_view(words[i].text).substr(0, equals)) ==
        names.end()) {
      continue;
    }
    if (equals != std::string::npos) {
      cut = words[i];
      cut.text.erase(0, equals + 1);
      found = &cut;
    } else if (i + 1 < words.size()) {
      found = &words[i + 1];
    }
  }
  return found;
}

std::optional<std::int64_t> count_of(const ShellWord& word) {
  std::int64_t count = 0;
  const char* const end = word.text.data() + word.text.size();
  const auto read = std::from_chars(word.text.data(), end, count);
  const bool counts = word.unknown.empty() && read.ec == std::errc() && read.ptr == end;
  return counts && count >= 1 && count <= limits::kMaxDevices ? std::optional(count) : std::nullopt;
}

std::optional<std::int64_t> ranks_of(Words launcher) {
  ShellWord cut_per_node;
  ShellWord cut_nodes;
  const ShellWord* const per_node =
      word_of(launcher, {"--nproc_per_node", "--nproc-per-node", "--num_gpus"}, cut_per_node);
  const ShellWord* const nodes = word_of(launcher, {"--nnodes", "--num_nodes"}, cut_nodes);
  if (per_node == nullptr) {
    return std::nullopt;
  }
  const auto processes = count_of(*per_node);
  const auto machines = nodes == nullptr ? std::optional<std::int64_t>(1) : count_of(*nodes);
  return processes && machines ? std::optional(*processes * *machines) : std::nullopt;
}

}  // namespace

std::optional<std::int64_t> launched_ranks(std::string_view text, const std::string& where) {
  std::optional<std::int64_t> ranks;
  for (const ShellCommand& command : read_shell(text, where)) {
    const Words launcher = before_program(command);
    if (launcher.empty()) {
      continue;
    }
    const std::optional<std::int64_t> here = ranks_of(launcher);
    if (ranks && here && *ranks != *here) {
      return std::nullopt;
    }
    ranks = here ? here : ranks;
  }
  return ranks;
}

}  // namespace orrery::plan
