// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/settings.hpp"

#include <algorithm>
#include <array>
#include <charconv>

#include "base/text.hpp"
#include "base/words.hpp"
#include "studies/rows/denials.hpp"
#include "studies/rows/row_words.hpp"

namespace orrery::studies {
namespace {

constexpr std::string_view kClauseEnds = ",;()\n";

bool is_word_sign(char c) { return is_letter(c) || is_digit(c); }

bool is_minus(std::string_view text, std::size_t at) {
  return at + 1 < text.size() && is_digit(text[at + 1]) && (at == 0 || !is_word_sign(text[at - 1]));
}

// "no ", "without " in the clause before a name.
bool is_denied_before(std::string_view text, std::size_t name) {
  constexpr auto kDenials =
      std::to_array<std::string_view>({"no", "not", "non", "without", "w/o", "never", "disable"});
  std::string_view before = text.substr(0, name);
  const std::size_t end = before.find_last_of(kClauseEnds);
  before.remove_prefix(end == before.npos ? 0 : end + 1);
  return has_word(before, kDenials);
}

// Behind a name and the signs and words that join it to its value.
std::string_view value_behind(std::string_view text, std::size_t end) {
  constexpr auto kJoints = std::to_array<std::string_view>({"of", "is", "was", "size", "degree"});
  std::string_view rest = text.substr(std::min(text.size(), text.find_first_not_of(" =:(", end)));
  for (const std::string_view joint : kJoints) {
    if (rest.starts_with(joint) && rest.substr(joint.size()).starts_with(' ')) {
      const std::size_t next = rest.find_first_not_of(" =:(", joint.size());
      rest.remove_prefix(std::min(rest.size(), next));
    }
  }
  return rest;
}

// The clause that a position stands in.
std::string_view clause_around(std::string_view text, std::size_t at) {
  const std::size_t end = std::min(text.size(), text.find_first_of(kClauseEnds, at));
  const std::size_t before = text.substr(0, at).find_last_of(kClauseEnds);
  const std::size_t begin = before == text.npos ? 0 : before + 1;
  return text.substr(begin, end - begin);
}

}  // namespace

std::string with_blanks(std::string_view text) {
  const std::string lower = to_lower(text);
  std::string plain;
  for (std::size_t at = 0; at < lower.size(); ++at) {
    const bool blank =
        lower[at] == ' ' || lower[at] == '_' || (lower[at] == '-' && !is_minus(lower, at));
    if (!blank) {
      plain += lower[at];
    } else if (!plain.empty() && plain.back() != ' ') {
      plain += ' ';
    }
  }
  return plain;
}

std::string asserted_with_blanks(std::string_view text) { return asserted(with_blanks(text)); }

std::optional<bool> truth_of(std::string_view word) {
  constexpr auto kYes =
      std::to_array<std::string_view>({"true", "yes", "on", "enabled", "y", "t", "1"});
  constexpr auto kNo = std::to_array<std::string_view>(
      {"false", "no", "off", "disabled", "n", "f", "0", "none", "unset", "never"});
  if (is_among(word, kYes)) {
    return true;
  }
  return is_among(word, kNo) ? std::optional(false) : std::nullopt;
}

std::optional<double> number_set(std::string_view text, SettingNames names, SettingNames nouns) {
  const std::string plain = with_blanks(about_this_run(text));
  for (const std::string_view name : names) {
    for (std::size_t at = find_word(plain, name, 0); at != plain.npos;
         at = find_word(plain, name, at + 1)) {
      const std::string_view value = value_behind(plain, at + name.size());
      double number = 0;
      const auto read = std::from_chars(value.data(), value.data() + value.size(), number,
                                        std::chars_format::fixed);
      const std::string_view counted =
          trim(value.substr(static_cast<std::size_t>(read.ptr - value.data())));
      const bool of_noun =
          std::any_of(nouns.begin(), nouns.end(),
                      [counted](std::string_view noun) { return counted.starts_with(noun); });
      if (read.ec == std::errc() && !of_noun && !is_denied_before(plain, at)) {
        return number;
      }
    }
  }
  return std::nullopt;
}

std::optional<bool> switch_set(std::string_view text, SettingNames names) {
  const std::string plain = with_blanks(about_this_run(text));
  for (const std::string_view name : names) {
    const std::size_t at = find_word(plain, name, 0);
    if (at == plain.npos) {
      continue;
    }
    const std::string_view value = value_behind(plain, at + name.size());
    const auto stated = truth_of(value.substr(0, value.find_first_of(" ,;)\n")));
    if (stated) {
      return stated;
    }
    return !is_denied_before(plain, at) && !trim(asserted(clause_around(plain, at))).empty();
  }
  return std::nullopt;
}

}  // namespace orrery::studies
