// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/denials.hpp"

#include <algorithm>
#include <array>

#include "base/text.hpp"
#include "base/words.hpp"
#include "studies/rows/conditions.hpp"

namespace orrery::studies {
namespace {

// Without switches of value 0: "eager CUDA_LAUNCH_BLOCKING=0" says "eager".
std::string without_zeros(std::string_view clause) {
  std::string kept(clause);
  for (std::size_t sign = kept.find('='); sign != kept.npos; sign = kept.find('=', sign)) {
    const std::size_t value = kept.find_first_not_of(' ', sign + 1);
    const std::string_view behind =
        std::string_view(kept).substr(value == kept.npos ? kept.size() : value);
    const bool zero = behind.starts_with('0') &&
                      (behind.size() == 1 || (!is_letter_or_digit(behind[1]) && behind[1] != '.'));
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

using Words = std::span<const std::string_view>;

// Whether one of the words stands right before one of the others, or with one between them: "an
// earlier FSDP run", "was 4% slower".
bool is_followed(std::string_view clause, Words words, Words others) {
  const std::vector<std::string_view> all = split(clause, ' ');
  for (std::size_t at = 0; at + 1 < all.size(); ++at) {
    if (is_among(all[at], words) &&
        (is_among(all[at + 1], others) || (at + 2 < all.size() && is_among(all[at + 2], others)))) {
      return true;
    }
  }
  return false;
}

// Deny all of the clause or, alone in a bracket, the one before.
constexpr auto kBehind = std::to_array<std::string_view>(
    {"off",         "disabled",      "none",          "false",
     "unused",      "not used",      "not enabled",   "not applied",
     "excluded",    "ignored",       "neglected",     "not included",
     "not counted", "not set",       "unset",         "not supported",
     "unsupported", "failed",        "fails",         "not available",
     "unavailable", "not installed", "not possible",  "not needed",
     "not trained", "not tested",    "not run",       "not implemented",
     "not working", "not done",      "not performed", "not covered"});

// "was not used", "is disabled": without a subject of its own.
bool denies_subject(std::string_view clause) {
  constexpr auto kVerbs = std::to_array<std::string_view>({"was ", "were ", "is ", "are ", "not "});
  clause = trim(clause);
  return has_word(clause, kBehind) &&
         std::any_of(kVerbs.begin(), kVerbs.end(),
                     [clause](std::string_view verb) { return clause.starts_with(verb); });
}

// What a clause says before it denies the rest; nothing where the denial stands behind.
std::string_view asserted_clause(std::string_view clause) {
  constexpr auto kBefore = std::to_array<std::string_view>(
      {"no", "non", "not", "without", "w/o", "never", "excluding", "excludes", "excl"});
  // "was not yet available".
  constexpr auto kNot = std::to_array<std::string_view>({"not"});
  constexpr auto kDone = std::to_array<std::string_view>(
      {"available", "covered", "used", "enabled", "supported", "implemented", "tested", "applied"});
  if (has_word(clause, kBehind) || is_followed(clause, kNot, kDone)) {
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
    if (!is_among(word, kShort)) {
      return point;
    }
  }
  return clause.size();
}

// "another run", "the next row": what a clause says is said of those.
bool names_other_run(std::string_view clause) {
  constexpr auto kOthers =
      std::to_array<std::string_view>({"other", "another", "earlier", "previous", "next"});
  constexpr auto kRuns =
      std::to_array<std::string_view>({"run", "runs", "row", "rows", "experiment", "experiments",
                                       "table", "tables", "figure", "appendix"});
  constexpr auto kSeparate = std::to_array<std::string_view>({"separate"});
  return is_followed(clause, kOthers, kRuns) ||
         (has_word(clause, kSeparate) && has_word(clause, kRuns));
}

// "1.2x over ZeRO-Offload".
bool names_speedup(std::string_view clause) {
  const std::vector<std::string_view> words = split(clause, ' ');
  for (std::size_t at = 0; at + 1 < words.size(); ++at) {
    const std::string_view factor = words[at];
    if (factor.size() > 1 && is_digit(factor.front()) && factor.back() == 'x' &&
        words[at + 1] == "over") {
      return true;
    }
  }
  return false;
}

// "DPO results in appendix", "LoRA numbers in Table 7", "ZeRO-Offload baseline OOMs".
bool names_other_figures(std::string_view clause) {
  constexpr auto kFigures =
      std::to_array<std::string_view>({"results", "numbers", "values", "figures", "timings"});
  constexpr auto kIn = std::to_array<std::string_view>({"in"});
  constexpr auto kPlaces = std::to_array<std::string_view>(
      {"table", "appendix", "figure", "fig", "section", "supplement", "tables", "figures"});
  constexpr auto kBaselines = std::to_array<std::string_view>(
      {"baseline ooms", "baseline oom", "baseline runs", "baseline was", "baseline is",
       "baseline gets", "baseline reaches", "baseline takes", "baseline fails", "over baseline",
       "over the baseline", "than baseline", "than the baseline"});
  return (is_followed(clause, kFigures, kIn) && has_word(clause, kPlaces)) ||
         has_word(clause, kBaselines);
}

// "HSDP was 4% slower", "HSDP in the paper"; "as in the paper" is said of this run.
bool names_comparison(std::string_view clause) {
  constexpr auto kWords = std::to_array<std::string_view>(
      {"versus", "vs", "compared", "planned", "would", "elsewhere", "tried", "prevented", "gave",
       "debugging", "baseline in", "see also"});
  constexpr auto kSpeeds = std::to_array<std::string_view>({"slower", "faster"});
  constexpr auto kAre = std::to_array<std::string_view>({"was", "were", "is", "are"});
  constexpr auto kPapers = std::to_array<std::string_view>(
      {"in the paper", "in the appendix", "in their paper", "in appendix", "in the ablation",
       "in an ablation", "in ablation", "in ablations", "in the ablations"});
  constexpr auto kAsThere = std::to_array<std::string_view>({"as"});
  return has_word(clause, kWords) || is_followed(clause, kAre, kSpeeds) || names_speedup(clause) ||
         names_other_figures(clause) || (has_word(clause, kPapers) && !has_word(clause, kAsThere));
}

// What a clause says of this run: "FSDP instead of HSDP" is about the first alone.
std::string_view of_this_run(std::string_view clause) {
  constexpr auto kInstead =
      std::to_array<std::string_view>({"unlike", "instead of", "rather than"});
  if (names_other_run(clause) || names_comparison(clause) || names_condition(clause) ||
      names_possibility(clause)) {
    return {};
  }
  std::size_t end = clause.size();
  for (const std::string_view word : kInstead) {
    end = std::min(end, find_word(clause, word));
  }
  return clause.substr(0, end);
}

// "(other row)", "(planned)" are said of what stands before the bracket.
bool is_about_clause_before(std::string_view bracket) {
  constexpr auto kWords = std::to_array<std::string_view>(
      {"see",      "in",      "of",       "an",        "a",        "the",    "other",
       "another",  "earlier", "previous", "next",      "separate", "run",    "runs",
       "row",      "rows",    "planned",  "elsewhere", "tried",    "tested", "paper",
       "appendix", "only",    "for",      "debugging"});
  const std::vector<std::string_view> words = split(trim(bracket), ' ');
  return std::all_of(words.begin(), words.end(),
                     [&](std::string_view word) { return is_among(word, kWords); });
}

}  // namespace

std::string about_this_run(std::string_view text) {
  const std::string lower = to_lower(text);
  std::string said;
  std::size_t begin = 0;  // of the clause before
  bool dropped = false;
  for (std::string_view rest = lower; !rest.empty();) {
    const std::size_t end = clause_end(rest);
    const std::string_view clause = rest.substr(0, end);
    const bool goes_on = dropped && trim(clause).starts_with("which ");
    const std::string_view kept = goes_on ? std::string_view() : of_this_run(clause);
    dropped = kept.empty() && !trim(clause).empty();
    const bool of_before = is_about_clause_before(clause) || is_condition(clause);
    if (dropped && said.ends_with('(') && of_before) {
      said.replace(begin, said.size() - begin, "(");
    }
    begin = said.size();
    said += kept;
    said += rest.substr(end, 1);
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return said;
}

std::string_view before_comparison(std::string_view text) {
  constexpr auto kCompared = std::to_array<std::string_view>(
      {" vs ", " vs. ", " versus ", " instead of ", " rather than ", " unlike ", " compared "});
  for (const std::string_view word : kCompared) {
    text = text.substr(0, text.find(word));
  }
  return text;
}

std::string asserted(std::string_view text) { return undenied(about_this_run(text)); }

std::string undenied(std::string_view text) {
  std::string said;
  std::size_t begin = 0;    // of the clause before
  std::size_t bracket = 0;  // of the clause that a bracket stands behind
  while (!text.empty()) {
    const std::size_t end = clause_end(text);
    // "SGD (stochastic gradient descent) was not used" is said of what stands before the bracket.
    if (said.ends_with(')') && denies_subject(text.substr(0, end))) {
      said.erase(bracket);
    }
    bracket = said.ends_with('(') ? begin : bracket;
    const bool alone = said.ends_with('(') && is_among(trim(text.substr(0, end)), kBehind);
    said.erase(alone ? begin : said.size());
    begin = said.size();
    said += asserted_clause(without_zeros(text.substr(0, end)));
    said += text.substr(end, 1);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return said;
}

std::vector<std::string> asserted_clauses(std::string_view text) {
  const std::string lower = about_this_run(text);
  std::vector<std::string> clauses;
  std::size_t bracket = 0;  // the clause that the last one stands behind
  char sign = ' ';          // before the clause
  for (std::string_view rest = lower; !rest.empty();) {
    const std::size_t end = clause_end(rest);
    const std::string_view clause = rest.substr(0, end);
    bracket = sign == '(' ? clauses.size() - 1 : bracket;
    // "torch.compile (off)", "torch.compile (Inductor) was not used".
    const bool alone = sign == '(' && is_among(trim(clause), kBehind);
    if (alone || (sign == ')' && !clauses.empty() && denies_subject(clause))) {
      clauses[bracket].clear();
    }
    clauses.push_back(undenied(clause));
    sign = end < rest.size() ? rest[end] : ' ';
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return clauses;
}

bool says_and_means(std::string_view text, std::string_view phrase) {
  return asserted(to_lower(text)).find(to_lower(phrase)) != std::string::npos;
}

}  // namespace orrery::studies
