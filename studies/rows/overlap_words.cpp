// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/overlap_words.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "base/text.hpp"
#include "base/words.hpp"
#include "studies/rows/measurement.hpp"
#include "studies/rows/row_words.hpp"
#include "studies/rows/settings.hpp"

namespace orrery::studies {
namespace {

using Words = std::vector<std::string_view>;

// "tp_comm_overlap: N", "overlap_grad_reduce (off)", "--no-overlap-grad-reduce".
bool is_switched_off(std::string_view clause) {
  const std::string plain = with_signs_as(with_blanks(clause), "=:()", ' ');
  const std::string_view words = trim(plain);
  const std::size_t blank = words.find_last_of(' ');
  return words.starts_with("no ") ||
         (blank != words.npos && truth_of(words.substr(blank + 1)) == false);
}

// "overlap_grad_reduce=True tp_comm_overlap=False": each setting ends with its value.
void add_settings(std::string_view clause, Words& clauses) {
  std::vector<std::size_t> ends;
  bool sign = false;  // the word before ends with one
  for (std::size_t begin = 0; begin < clause.size();) {
    const std::size_t end = std::min(clause.size(), clause.find(' ', begin));
    const std::string_view word = clause.substr(begin, end - begin);
    const std::size_t equals = word.find_last_of("=:");
    const std::string_view value = equals == word.npos ? word : word.substr(equals + 1);
    const bool plain = value == "true" || value == "false";
    if (truth_of(value) && (plain || sign || equals != word.npos)) {
      ends.push_back(end);
    }
    sign = word.ends_with('=') || word.ends_with(':') || (sign && word.empty());
    begin = end + 1;
  }
  std::size_t begin = 0;
  for (std::size_t at = 0; at + 1 < ends.size(); ++at) {
    clauses.push_back(trim(clause.substr(begin, ends[at] - begin)));
    begin = ends[at];
  }
  clauses.push_back(trim(clause.substr(begin)));
}

// What a text says that has no other words than those for overlap, for all of it and for yes or no:
// "communication overlap disabled", "w/o overlap"; no value for other texts.
std::optional<bool> in_general_words(std::string_view text) {
  constexpr auto kJoints = std::to_array<std::string_view>(
      {"", "comm", "comms", "communication", "communications", "compute", "computation", "of",
       "any", "with", "and", "is", "are", "was", "the"});
  constexpr auto kYes = std::to_array<std::string_view>(
      {"overlap", "overlaps", "overlapped", "overlapping", "hidden", "yes", "y", "on", "true", "t",
       "1", "enabled", "all", "everything", "full", "fully"});
  constexpr auto kNo =
      std::to_array<std::string_view>({"no", "n", "off", "false", "f", "0", "disabled", "none",
                                       "not", "without", "w/o", "nothing", "never", "exposed"});
  if (text.find("overlap_comm") != text.npos) {  // DeepSpeed's, of gradients
    return std::nullopt;
  }
  std::string plain = with_blanks(text);
  if (const std::size_t without = plain.find("w/o"); without != plain.npos) {
    plain.replace(without, 3, "without");
  }
  plain = with_signs_as(plain, "=:/", ' ');
  bool said = false;
  bool denied = false;
  bool partly = false;
  for (const std::string_view word : split(plain, ' ')) {
    if (!is_among(word, kJoints) && !is_among(word, kYes) && !is_among(word, kNo)) {
      return std::nullopt;
    }
    said |= is_among(word, kYes) || is_among(word, kNo);
    denied |= is_among(word, kNo);
    partly |= word == "fully" || word == "full";
  }
  return !said || (denied && partly) ? std::nullopt : std::optional(!denied);  // "not fully"
}

// Whether a comma joins a kind to a list whose end denies all of it: "TP, PP and DP overlap off".
bool joins_denial(std::string_view before, std::string_view behind) {
  constexpr auto kKinds = std::to_array<std::string_view>(
      {"dp", "tp", "pp", "cp", "p2p", "grad", "param", "grad/param", "fsdp"});
  constexpr auto kOwn =
      std::to_array<std::string_view>({"no ", "not ", "without ", "w/o ", "non-", "none"});
  for (std::string_view part : split(behind.substr(0, behind.find_first_of(";\n")), ',')) {
    if (!is_among(trim(before.substr(before.rfind(',') + 1)), kKinds)) {
      return false;
    }
    part = trim(part);
    if (!is_among(part, kKinds)) {
      return denies_overlap(part) &&
             std::ranges::none_of(kOwn, [&](auto word) { return part.starts_with(word); });
    }
  }
  return false;
}

}  // namespace

std::vector<std::string_view> overlap_clauses(std::string_view text) {
  Words clauses;
  std::size_t begin = 0;
  int depth = 0;
  for (std::size_t at = 0; at <= text.size(); ++at) {
    const char c = at < text.size() ? text[at] : ';';
    const std::string_view rest = text.substr(std::min(at, text.size()));
    const bool short_word = text.substr(begin, std::min(at, text.size()) - begin).ends_with("comm");
    depth += c == '(' ? 1 : c == ')' ? -1 : 0;
    const bool ends =
        c == ',' && depth <= 0 && !joins_denial(text.substr(begin, at - begin), rest.substr(1));
    if (c == ';' || c == '\n' || ends || (rest.starts_with(". ") && !short_word) ||
        rest.starts_with(" --")) {
      add_settings(trim(text.substr(begin, at - begin)), clauses);
      begin = at + 1;
    }
  }
  return clauses;
}

std::string_view without_means(std::string_view clause) {
  for (const std::string_view means : {" via ", " using ", " through ", " by means of "}) {
    clause = clause.substr(0, clause.find(means));
  }
  return before_remark(clause);
}

std::string with_short_collectives(std::string_view clause) {
  constexpr auto kNames =
      std::to_array<std::pair<std::string_view, std::string_view>>({{"all reduce", "ar"},
                                                                    {"allreduce", "ar"},
                                                                    {"all gather", "ag"},
                                                                    {"allgather", "ag"},
                                                                    {"reduce scatter", "rs"},
                                                                    {"reducescatter", "rs"}});
  std::string text = with_blanks(clause);
  for (const auto& [name, short_name] : kNames) {
    for (std::size_t at = find_word(text, name); at != text.npos; at = find_word(text, name, at)) {
      text.replace(at, name.size(), short_name);
    }
  }
  return text;
}

bool denies_overlap(std::string_view clause) {
  constexpr auto kDenials = std::to_array<std::string_view>({"no overlap",
                                                             "not overlap",
                                                             "not hidden",
                                                             "without",
                                                             "w/o",
                                                             " off",
                                                             "exposed",
                                                             "disabled",
                                                             "=false",
                                                             "after backward",
                                                             "at iteration end",
                                                             "batched",
                                                             "not supported",
                                                             "unsupported",
                                                             "not available",
                                                             "unavailable",
                                                             "not possible",
                                                             "impossible",
                                                             "not used",
                                                             "unused",
                                                             "not enabled",
                                                             "not implemented",
                                                             "never",
                                                             "failed"});
  return says_any(clause, kDenials) || clause.starts_with("no ") || clause.ends_with(" not") ||
         is_switched_off(clause);
}

bool says_hidden(std::string_view clause) {
  return clause.find("overlap") != clause.npos && !denies_overlap(clause);
}

std::optional<bool> overlap_of_everything(std::string_view clause) {
  constexpr auto kKinds = std::to_array<std::string_view>(
      {"dp", "tp", "pp", "cp", "ep", "p2p", "fsdp", "zero", "grad", "gradient", "gradients",
       "param", "parameter", "data", "tensor", "pipeline", "context", "expert"});
  if (const auto said = in_general_words(before_remark(clause))) {
    return said;
  }
  if (has_word(clause.substr(0, clause.find('(')), kKinds)) {
    return std::nullopt;
  }
  constexpr auto kAll = std::to_array<std::string_view>(
      {"all communication overlap", "all comm overlap", "all overlap", "everything overlap",
       "full overlap", "fully overlap", "communication overlapped with comp"});
  constexpr auto kNone = std::to_array<std::string_view>(
      {"no communication overlap", "no comm overlap", "communication not overlap",
       "comm not overlap", "without overlap", "nothing overlap", "no overlap of"});
  const bool none = says_any(clause, kNone);
  const bool all = !none && std::any_of(kAll.begin(), kAll.end(), [clause](std::string_view word) {
    return clause.starts_with(word);
  });
  return none || all ? std::optional(all) : std::nullopt;
}

bool says_overlap_alone(std::string_view clause) {
  return in_general_words(before_remark(clause)).has_value();
}

bool overlaps_nothing(std::string_view cell) {
  return in_general_words(before_remark(cell)) == false;
}

}  // namespace orrery::studies
