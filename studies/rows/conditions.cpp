// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/conditions.hpp"

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "base/text.hpp"
#include "base/words.hpp"

namespace orrery::studies {
namespace {

using Words = std::span<const std::string_view>;

std::string_view word_at(Words words, std::size_t at) {
  return at < words.size() ? words[at] : std::string_view();
}

bool is_number(std::string_view word) {
  return !word.empty() && word.find_first_not_of("0123456789") == word.npos;
}

// "70b", "128k": of a network or a sequence.
bool is_size(std::string_view word) {
  constexpr std::string_view kUnits = "kmbt";
  return word.size() > 1 && is_digit(word.front()) && kUnits.find(word.back()) != kUnits.npos &&
         word.find_first_not_of("0123456789.") == word.size() - 1;
}

bool counts_hardware(std::string_view word) {
  constexpr auto kNouns = std::to_array<std::string_view>(
      {"gpu", "gpus", "node", "nodes", "device", "devices", "ranks", "tokens"});
  return is_among(word, kNouns);
}

bool names_runs(std::string_view word) {
  constexpr auto kRuns = std::to_array<std::string_view>(
      {"rows", "models", "runs", "configs", "configurations", "experiments", "cases"});
  return is_among(word, kRuns);
}

// "the 70B rows", "175B and 530B", behind "only" also "512 GPUs"; "all models" and "the 7B steps"
// are not some of the runs.
bool begins_with_some_runs(Words words, bool only) {
  constexpr auto kAll = std::to_array<std::string_view>(
      {"all", "these", "both", "every", "our", "most", "any", "its", "this"});
  constexpr auto kBehindSize =
      std::to_array<std::string_view>({"", "model", "models", "and", "or", "only", "row", "rows",
                                       "run", "runs", "context", "contexts", "sequences"});
  constexpr std::size_t kNear = 3;  // words
  words = words.subspan(word_at(words, 0) == "the" ? 1 : 0);
  if (is_among(word_at(words, 0), kAll)) {
    return false;
  }
  for (std::size_t at = 0; at < std::min(kNear, words.size()); ++at) {
    const bool size = is_size(words[at]) && is_among(word_at(words, at + 1), kBehindSize);
    const bool count = only && is_number(words[at]) && counts_hardware(word_at(words, at + 1));
    if (size || count || (at > 0 && names_runs(words[at]))) {
      return true;
    }
  }
  return false;
}

// "70B rows only", "on 512 GPUs only".
bool ends_in_some_runs(Words before) {
  const std::string_view last = before.empty() ? std::string_view() : before.back();
  const std::string_view second =
      before.size() < 2 ? std::string_view() : before[before.size() - 2];
  return is_size(last) || names_runs(last) || (counts_hardware(last) && is_number(second));
}

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words = split(text, ' ');
  std::erase(words, std::string_view());
  return words;
}

bool is_condition_at(Words words, std::size_t at) {
  constexpr auto kConditions = std::to_array<std::string_view>({"where", "when", "if"});
  constexpr auto kLimits = std::to_array<std::string_view>({"above", "beyond", "below"});
  constexpr auto kOf = std::to_array<std::string_view>({"for", "in", "on", "at", "with"});
  constexpr auto kNamed = std::to_array<std::string_view>({"for", "in", "on"});
  const std::string_view next = word_at(words, at + 1);
  const Words behind = words.subspan(std::min(words.size(), at + 2));
  if (words[at] == "only") {
    return is_among(next, kConditions) || is_among(next, kLimits) ||
           (is_among(next, kOf) && begins_with_some_runs(behind, true)) ||
           ends_in_some_runs(words.first(at));
  }
  if (is_among(words[at], kLimits)) {
    return is_size(next) || (is_number(next) && counts_hardware(word_at(words, at + 2)));
  }
  return is_among(words[at], kNamed) && begins_with_some_runs(words.subspan(at + 1), false);
}

}  // namespace

bool names_condition(std::string_view clause) {
  const std::string plain = with_signs_as(clause, "-/>=", ' ');
  const std::vector<std::string_view> words = words_of(plain);
  for (std::size_t at = 0; at < words.size(); ++at) {
    if (is_condition_at(words, at)) {
      return true;
    }
  }
  return false;
}

bool is_condition(std::string_view bracket) {
  constexpr auto kFirst = std::to_array<std::string_view>(
      {"only", "used", "stated", "for", "in", "on", "above", "beyond", "below"});
  const std::vector<std::string_view> words = words_of(bracket);
  const bool first = !words.empty() && (is_among(words.front(), kFirst) || is_size(words.front()));
  return first && names_condition(bracket);
}

bool names_possibility(std::string_view clause) {
  constexpr auto kWords = std::to_array<std::string_view>(
      {"considered", "future work", "prototype", "prototypes", "oom", "ooms", "out of memory",
       "no gain", "no benefit", "no speedup", "needs"});
  constexpr auto kNeeded = std::to_array<std::string_view>({"needed", "required", "necessary"});
  // "no recompute needed" states what is done, and so does what a run needs to fit.
  constexpr auto kDone = std::to_array<std::string_view>({"no", "not", "to fit"});
  return has_word(clause, kWords) || (has_word(clause, kNeeded) && !has_word(clause, kDone));
}

}  // namespace orrery::studies
