// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/conditions.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
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

// "5 runs" and "mixed-precision runs" are how often and in what everything was measured.
bool describes_all_runs(Words words) {
  constexpr auto kAlike = std::to_array<std::string_view>(
      {"precision", "training", "pretraining", "benchmark", "timing", "repeated", "independent",
       "consecutive", "several", "multiple", "two", "three", "four", "five", "ten"});
  return is_number(words.front()) || is_among(words.back(), kAlike);
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
    const bool some = at > 0 && names_runs(words[at]) && !describes_all_runs(words.first(at));
    if (size || count || some) {
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

// Without the signs that join words.
std::string plain_words(std::string_view clause) { return with_signs_as(clause, "-/>=", ' '); }

std::vector<std::string_view> words_of(std::string_view plain) {
  std::vector<std::string_view> words = split(plain, ' ');
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

// "20B", "2K", "64 GPUs", "16384 tokens".
struct Size {
  std::string_view word;
  double number = 0;
  double half_digit = 0;  // of the last one that is stated
  char unit = ' ';        // k, m, b, t, g of GPUs, s of tokens
  std::size_t words = 0;  // 0: there is none
};

Size size_at(Words words, std::size_t at) {
  const std::string_view word = word_at(words, at);
  Size size{.word = word};
  const auto read = std::from_chars(word.data(), word.data() + word.size(), size.number);
  const std::size_t digits = static_cast<std::size_t>(read.ptr - word.data());
  const std::size_t point = word.substr(0, digits).find('.');
  const std::size_t places = point == word.npos ? 0 : digits - point - 1;
  size.half_digit = std::pow(10.0, -static_cast<double>(places)) / 2;
  const std::string_view noun = word_at(words, at + 1);
  if (is_size(word) && !noun.starts_with("gpu")) {
    size.unit = word.back();
    size.words = 1;
  } else if (is_number(word) && (noun.starts_with("gpu") || noun == "tokens")) {
    size.unit = noun == "tokens" ? 's' : 'g';
    size.words = 2;
  }
  return size;
}

// Of the run and of the condition, in one unit.
struct Compared {
  double own = 0;  // 0: not known
  double stated = 0;
  double tolerance = 0;
};

std::vector<Compared> comparisons(const Size& size, const RunSizes& run) {
  const auto gpus = static_cast<double>(run.gpus.value_or(0));
  const auto sequence = static_cast<double>(run.sequence.value_or(0));
  const double billions = run.billions.value_or(0);
  switch (size.unit) {
    case 'g':
      return {{gpus, size.number, 0}};
    case 's':
      return {{sequence, size.number, 0}};
    case 'k':
      return {{sequence, size.number * 1024, 0}, {sequence, size.number * 1000, 0}};
    case 'm':
      return {{billions * 1e3, size.number, size.half_digit},
              {sequence, size.number * 1024 * 1024, 0}};
    case 't':
      return {{billions / 1e3, size.number, size.half_digit}};
    default:
      return {{billions, size.number, size.half_digit}};
  }
}

bool is_own_size(const Size& size, const RunSizes& run) {
  const std::string name = to_lower(run.network);
  const std::size_t named = find_word(name, size.word);
  if (size.words == 1 && named != name.npos && (named == 0 || name[named - 1] != '.')) {
    return true;
  }
  return std::ranges::any_of(comparisons(size, run), [](const Compared& one) {
    return one.own > 0 && std::abs(one.own - one.stated) <= one.tolerance;
  });
}

bool is_on_side(bool above, const Size& size, const RunSizes& run) {
  return std::ranges::all_of(comparisons(size, run), [above](const Compared& one) {
    return one.own > 0 && (above ? one.own > one.stated : one.own < one.stated);
  });
}

// From the word that begins a condition to the one behind it; equal where the run does not fulfil
// it or there is none.
struct Phrase {
  std::size_t begin = 0;
  std::size_t end = 0;
};

Phrase own_condition_at(Words words, std::size_t at, const RunSizes& run) {
  constexpr auto kFor = std::to_array<std::string_view>({"for", "in", "on", "at", "with"});
  constexpr auto kLimits = std::to_array<std::string_view>({"above", "beyond", "below"});
  constexpr auto kNouns = std::to_array<std::string_view>(
      {"model", "models", "row", "rows", "run", "runs", "context", "contexts", "sequences"});
  constexpr auto kUsed = std::to_array<std::string_view>({"used", "stated"});
  constexpr auto kTurned = std::to_array<std::string_view>(
      {"not", "except", "but", "than", "unlike", "no", "without", "vs"});
  const bool limit = is_among(words[at], kLimits);
  if (!limit && !is_among(words[at], kFor)) {
    return {};
  }
  Phrase phrase{at, at + 1};
  phrase.begin -= at > 0 && words[at - 1] == "only" ? 1 : 0;
  bool condition = is_condition_at(words, at) || is_condition_at(words, phrase.begin);
  phrase.begin -= phrase.begin > 0 && is_among(words[phrase.begin - 1], kUsed) ? 1 : 0;
  phrase.end += word_at(words, phrase.end) == "the" ? 1 : 0;
  bool own = false;
  bool more = true;
  while (more) {
    const Size size = size_at(words, phrase.end);
    if (size.words == 0) {
      return {};
    }
    own |= limit ? is_on_side(words[at] != "below", size, run) : is_own_size(size, run);
    phrase.end += size.words;
    phrase.end += is_among(word_at(words, phrase.end), kNouns) ? 1 : 0;
    more = word_at(words, phrase.end) == "and" || word_at(words, phrase.end) == "or";
    phrase.end += more ? 1 : 0;
  }
  if (word_at(words, phrase.end) == "only") {
    condition |= is_condition_at(words, phrase.end++);
  }
  const bool turned = phrase.begin > 0 && is_among(words[phrase.begin - 1], kTurned);
  return condition && own && !turned ? phrase : Phrase();
}

}  // namespace

std::string without_own_conditions(std::string_view text, const RunSizes& run) {
  std::string said(text);
  const std::string lower = with_signs_as(plain_words(to_lower(text)), ",;()\n", ';');
  for (const std::string_view clause : split(lower, ';')) {
    std::vector<std::string_view> words = words_of(clause);
    for (std::string_view& word : words) {
      word.remove_suffix(word.ends_with('.') ? 1 : 0);
    }
    for (std::size_t at = 0; at < words.size(); ++at) {
      const Phrase phrase = own_condition_at(words, at, run);
      if (phrase.begin < phrase.end) {
        auto begin = static_cast<std::size_t>(words[phrase.begin].data() - lower.data());
        begin -= begin > 0 && lower[begin - 1] == ' ' ? 1 : 0;
        const std::string_view last = words[phrase.end - 1];
        const auto end = static_cast<std::size_t>(last.data() + last.size() - lower.data());
        said.replace(begin, end - begin, end - begin, '\0');
      }
    }
  }
  std::erase(said, '\0');
  return said;
}

bool names_condition(std::string_view clause) {
  const std::string plain = plain_words(clause);
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
  const std::string plain = plain_words(bracket);
  const std::vector<std::string_view> words = words_of(plain);
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
