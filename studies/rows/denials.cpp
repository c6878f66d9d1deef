// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/denials.hpp"

#include <algorithm>
#include <array>

#include "base/text.hpp"

namespace orrery::studies {
namespace {

bool is_part_of_word(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }

std::size_t find_word(std::string_view text, std::string_view word) {
  for (std::size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) {
    const std::size_t end = at + word.size();
    if ((at == 0 || !is_part_of_word(text[at - 1])) &&
        (end == text.size() || !is_part_of_word(text[end]))) {
      return at;
    }
  }
  return text.npos;
}

// Without switches of value 0: "eager CUDA_LAUNCH_BLOCKING=0" says "eager".
std::string without_zeros(std::string_view clause) {
  std::string kept(clause);
  for (std::size_t sign = kept.find('='); sign != kept.npos; sign = kept.find('=', sign)) {
    const std::size_t value = kept.find_first_not_of(' ', sign + 1);
    const std::string_view behind =
        std::string_view(kept).substr(value == kept.npos ? kept.size() : value);
    const bool zero = behind.starts_with('0') &&
                      (behind.size() == 1 || (!is_part_of_word(behind[1]) && behind[1] != '.'));
    if (!zero) {
      ++sign;
      continue;
    }
    const std::size_t name = kept.find_last_not_of(' ', sign == 0 ? 0 : sign - 1);
    const std::size_t before = name == kept.npos ? name : kept.find_last_of(' ', name);
    const std::size_t begin = before == kept.npos ? 0 : before + 1;
    kept.erase(begin, value + 1 - begin);
    sign = begin;
  }
  return kept;
}

// What a clause says before it denies the rest; nothing where the denial stands behind.
std::string_view asserted_clause(std::string_view clause) {
  constexpr auto kBehind = std::to_array<std::string_view>(
      {"off", "disabled", "none", "false", "unused", "not used", "not enabled", "not applied",
       "excluded", "ignored", "neglected", "not included", "not counted", "not set", "unset"});
  constexpr auto kBefore = std::to_array<std::string_view>(
      {"no", "non", "not", "without", "w/o", "never", "excluding", "excludes", "excl"});
  if (has_word(clause, kBehind)) {
    return {};
  }
  std::size_t end = clause.size();
  for (const std::string_view word : kBefore) {
    const std::size_t at = find_word(clause, word);
    if (at != clause.npos) {
      const bool last = trim(clause.substr(at + word.size())).empty();
      end = last ? 0 : std::min(end, at);
    }
  }
  return clause.substr(0, end);
}

// Of a clause or a sentence, whose point may stand in a number or a name, too.
std::size_t clause_end(std::string_view text) {
  constexpr auto kShort = std::to_array<std::string_view>(
      {"incl", "excl", "approx", "resp", "avg", "vs", "cf", "ca", "no", "e.g", "i.e"});
  const std::string_view clause = text.substr(0, text.find_first_of(",;()\n"));
  for (std::size_t point = clause.find(". "); point != clause.npos;
       point = clause.find(". ", point + 1)) {
    const std::string_view said = clause.substr(0, point);
    const std::string_view word = said.substr(said.find_last_of(' ') + 1);
    if (std::find(kShort.begin(), kShort.end(), word) == kShort.end()) {
      return point;
    }
  }
  return clause.size();
}

}  // namespace

bool has_word(std::string_view text, std::span<const std::string_view> words) {
  return std::any_of(words.begin(), words.end(),
                     [text](std::string_view word) { return find_word(text, word) != text.npos; });
}

std::string asserted(std::string_view text) {
  std::string said;
  while (!text.empty()) {
    const std::size_t end = clause_end(text);
    said += asserted_clause(without_zeros(text.substr(0, end)));
    said += text.substr(end, 1);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return said;
}

std::vector<std::string> asserted_clauses(std::string_view text) {
  const std::string lower = to_lower(text);
  std::vector<std::string> clauses;
  for (std::string_view rest = lower; !rest.empty();) {
    const std::size_t end = clause_end(rest);
    clauses.push_back(asserted(rest.substr(0, end)));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return clauses;
}

bool says_and_means(std::string_view text, std::string_view phrase) {
  return asserted(to_lower(text)).find(to_lower(phrase)) != std::string::npos;
}

}  // namespace orrery::studies
