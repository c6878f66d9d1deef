// SPDX-License-Identifier: Apache-2.0
// Conditions of a shell script: decided where every word is known.
#include <algorithm>
#include <array>
#include <charconv>

#include "plan/launch_script/shell_expand.hpp"

namespace orrery::plan::shell {
namespace {

Taken as_taken(bool holds) { return holds ? Taken::Yes : Taken::No; }

Taken compare(const std::string& left, const std::string& operation, const std::string& right) {
  if (operation == "=" || operation == "==" || operation == "!=") {
    return right.find_first_of("*?[") != std::string::npos
               ? Taken::Maybe
               : as_taken((left == right) == (operation != "!="));
  }
  const auto first = parse_integer(left);
  const auto second = parse_integer(right);
  if (!first.has_value() || !second.has_value()) {
    return Taken::Maybe;
  }
  const std::int64_t a = *first;
  const std::int64_t b = *second;
  constexpr std::array<std::string_view, 6> kNames = {"-eq", "-ne", "-lt", "-le", "-gt", "-ge"};
  const std::array<bool, 6> results = {a == b, a != b, a<b, a <= b, a> b, a >= b};
  const auto name = std::ranges::find(kNames, operation);
  return name == kNames.end() ? Taken::Maybe
                              : as_taken(results[static_cast<std::size_t>(name - kNames.begin())]);
}

}  // namespace

Taken opposite(Taken taken) {
  return taken == Taken::Maybe ? taken : taken == Taken::Yes ? Taken::No : Taken::Yes;
}

std::optional<std::int64_t> parse_integer(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole ? std::optional(value) : std::nullopt;
}

// [ A = B ], [[ A -gt B ]], test -n A: decided when every word is known.
Taken evaluate_test(const Values& words) {
  const bool unknown = std::ranges::any_of(words, Expander::is_marked);
  if (unknown || words.size() < 2) {
    return Taken::Maybe;
  }
  const std::string& name = words.front();
  const bool brackets = name == "[" || name == "[[";
  if (!brackets && name != "test") {
    return Taken::Maybe;
  }
  const std::size_t count = words.size() - (brackets ? 2 : 1);
  if (count == 3) {
    return compare(words[1], words[2], words[3]);
  }
  if (count == 2 && (words[1] == "-n" || words[1] == "-z")) {
    return as_taken(words[2].empty() == (words[1] == "-z"));
  }
  return Taken::Maybe;
}

}  // namespace orrery::plan::shell
