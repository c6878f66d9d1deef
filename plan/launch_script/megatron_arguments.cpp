// SPDX-License-Identifier: Apache-2.0
#include "plan/launch_script/megatron_arguments.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/error.hpp"
#include "base/quantity_text.hpp"
#include "base/text.hpp"

namespace orrery::plan {
namespace {

bool is_flag(const ShellWord& word) { return word.text.starts_with("--") && word.text.size() > 2; }

std::string name_of(const ShellWord& word) { return word.text.substr(0, word.text.find('=')); }

// Flags that only a training command has; any of them marks the launch.
bool marks_launch(const ShellWord& word) {
  constexpr std::array<std::string_view, 6> kMarks = {
      "--num-layers", "--hidden-size",       "--micro-batch-size",
      "--seq-length", "--global-batch-size", "--tensor-model-parallel-size"};
  return is_flag(word) && std::ranges::find(kMarks, name_of(word)) != kMarks.end();
}

bool prints_only(const ShellCommand& command) {
  const std::string& program = command.words.front().text;
  return program == "echo" || program == "printf";
}

// The words after the training program: behind the last *.py before the first launch flag, or all
// from the first flag on in a plain list of arguments.
std::vector<ShellWord> flags_of(const ShellCommand& command) {
  const auto first = std::ranges::find_if(command.words, marks_launch);
  auto begin = std::find_if(command.words.begin(), first, is_flag);
  for (auto word = command.words.begin(); word != first; ++word) {
    if (word->text.ends_with(".py")) {
      begin = word + 1;
    }
  }
  return {begin, command.words.end()};
}

std::vector<ShellWord> launch_flags(const std::vector<ShellCommand>& commands,
                                    const std::string& where) {
  std::vector<ShellWord> flags;
  int line = 0;
  bool list = false;  // of arguments alone, one or more a line
  for (const ShellCommand& command : commands) {
    const bool bare = is_flag(command.words.front());
    const bool launch = !prints_only(command) && std::ranges::any_of(command.words, marks_launch);
    if (!launch && !(bare && (list || flags.empty()))) {
      continue;
    }
    const std::vector<ShellWord> found = bare ? command.words : flags_of(command);
    if (!flags.empty() && !(bare && list)) {
      bad_input(fmt::format("{}:{}", where, command.line),
                fmt::format("a second training command (the first is in line {})", line),
                "keep one");
    }
    list = bare;
    line = command.line;
    flags.insert(flags.end(), found.begin(), found.end());
  }
  if (flags.empty()) {
    bad_input(where, "no training command with Megatron-LM arguments",
              "expected flags such as --num-layers and --micro-batch-size");
  }
  return flags;
}

[[noreturn]] void fail_stray(const std::string& where, const ShellWord& word) {
  const std::string place = fmt::format("{}:{}", where, word.line);
  if (!word.unknown.empty()) {
    bad_input(place, word.unknown, "it may hold flags: write them out");
  }
  bad_input(place,
            fmt::format("\"{}\" is neither a flag nor a value of one", printable(word.text, 80)));
}

}  // namespace

MegatronArguments::MegatronArguments(std::string_view text, const std::string& where)
    : where_(where) {
  std::vector<ShellWord> words = launch_flags(read_shell(text, where), where);
  // "$@" of a script that is run without arguments.
  std::erase_if(words,
                [](const ShellWord& word) { return word.text.empty() && word.unknown.empty(); });
  for (std::size_t i = 0; i < words.size();) {
    if (!is_flag(words[i])) {
      fail_stray(where_, words[i]);
    }
    std::vector<ShellWord> values;
    const std::size_t equals = words[i].text.find('=');
    if (equals != std::string::npos) {
      values.push_back(words[i]);
      values.back().text.erase(0, equals + 1);
    }
    std::size_t end = i + 1;
    while (end < words.size() && !is_flag(words[end])) {
      values.push_back(words[end++]);
    }
    add(words[i], std::move(values));
    i = end;
  }
}

void MegatronArguments::add(const ShellWord& flag, std::vector<ShellWord> values) {
  const std::string name = name_of(flag);
  // A word that hangs on a condition may hold flags of consequence.
  for (const ShellWord& value : values) {
    if (value.text == "?" && value.unknown.find("condition") != std::string::npos) {
      bad_input(fmt::format("{}:{}", where_, value.line), value.unknown,
                "set it without the condition");
    }
  }
  const auto [found, inserted] =
      arguments_.try_emplace(name, Argument{flag.line, std::move(values), false});
  if (inserted || megatron_flag_is_irrelevant(name)) {
    return;
  }
  bad_input(
      fmt::format("{}:{}", where_, flag.line),
      fmt::format("{} is given twice (first in line {})", printable(name, 80), found->second.line));
}

std::string MegatronArguments::where(std::string_view flag) const {
  const auto found = arguments_.find(flag);
  return found == arguments_.end() ? where_
                                   : fmt::format("{}:{}: {}", where_, found->second.line, flag);
}

MegatronArguments::Argument* MegatronArguments::find(std::string_view flag) {
  asked_for_.emplace(flag);
  const auto found = arguments_.find(flag);
  if (found == arguments_.end()) {
    return nullptr;
  }
  found->second.asked = true;
  return &found->second;
}

const std::string& MegatronArguments::value(std::string_view flag, const Argument& argument,
                                            std::size_t index) const {
  if (index >= argument.values.size()) {
    bad_input(where(flag), "value missing");
  }
  const ShellWord& word = argument.values[index];
  if (!word.unknown.empty()) {
    bad_input(where(flag), word.unknown, "write the value into the script");
  }
  return word.text;
}

void MegatronArguments::expect_values(const Argument& argument, std::size_t count) const {
  if (argument.values.size() > count) {
    fail_stray(where_, argument.values[count]);
  }
}

bool MegatronArguments::has(std::string_view flag) {
  const Argument* argument = find(flag);
  if (argument != nullptr) {
    expect_values(*argument, 0);
  }
  return argument != nullptr;
}

bool MegatronArguments::given(std::string_view flag) { return find(flag) != nullptr; }

std::optional<std::string> MegatronArguments::text(std::string_view flag) {
  const Argument* argument = find(flag);
  if (argument == nullptr) {
    return std::nullopt;
  }
  expect_values(*argument, 1);
  return value(flag, *argument, 0);
}

std::vector<std::string> MegatronArguments::texts(std::string_view flag) {
  std::vector<std::string> result;
  if (const Argument* argument = find(flag)) {
    for (std::size_t i = 0; i < std::max<std::size_t>(argument->values.size(), 1); ++i) {
      result.push_back(value(flag, *argument, i));
    }
  }
  return result;
}

std::optional<std::int64_t> MegatronArguments::integer(std::string_view flag, std::int64_t min,
                                                       std::int64_t max) {
  const auto found = text(flag);
  return found.has_value() ? std::optional(parse_integer(*found, where(flag), min, max))
                           : std::nullopt;
}

std::int64_t MegatronArguments::integer_or(std::string_view flag, std::int64_t fallback,
                                           std::int64_t min, std::int64_t max) {
  return integer(flag, min, max).value_or(fallback);
}

std::optional<double> MegatronArguments::number(std::string_view flag, double min, double max) {
  const auto found = text(flag);
  return found.has_value() ? std::optional(parse_number(*found, where(flag), min, max))
                           : std::nullopt;
}

std::size_t MegatronArguments::choice(std::string_view flag,
                                      const std::vector<std::string>& names) {
  const std::string found = text(flag).value_or(names.front());
  const auto name = std::ranges::find(names, found);
  if (name == names.end()) {
    bad_input(where(flag), fmt::format("\"{}\" is not modelled", printable(found, 80)),
              nearest_hint(found, names));
  }
  return static_cast<std::size_t>(name - names.begin());
}

void MegatronArguments::finish() const {
  const std::vector<std::string> known(asked_for_.begin(), asked_for_.end());
  for (const auto& [flag, argument] : arguments_) {
    if (argument.asked || megatron_flag_is_irrelevant(flag)) {
      continue;
    }
    const std::string_view reason = megatron_flag_not_modelled(flag);
    if (!reason.empty()) {
      bad_input(where(flag), fmt::format("not modelled: {}", reason));
    }
    const std::string nearest = nearest_name(flag, known);
    bad_input(fmt::format("{}:{}", where_, argument.line),
              fmt::format("unknown Megatron-LM flag {}", printable(flag, 80)),
              nearest.empty() ? "remove it if it changes neither the network nor the plan"
                              : fmt::format("did you mean {}?", nearest));
  }
}

}  // namespace orrery::plan
