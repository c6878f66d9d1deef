// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/stated_window.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <string_view>

#include "base/text.hpp"
#include "base/words.hpp"
#include "studies/rows/denials.hpp"
#include "studies/rows/settings.hpp"

namespace orrery::studies {
namespace {

// "cf=1.25", "cf: 1.25"; "cf. 2" compares.
double short_factor(std::string_view text) {
  constexpr std::string_view kName = "cf";
  constexpr auto kNames = std::to_array<std::string_view>({kName});
  const std::string plain = with_blanks(text);
  for (std::size_t at = find_word(plain, kName); at != plain.npos;
       at = find_word(plain, kName, at + 1)) {
    const std::size_t sign = plain.find_first_not_of(' ', at + kName.size());
    if (sign != plain.npos && (plain[sign] == '=' || plain[sign] == ':')) {
      return number_set(text, kNames).value_or(0);
    }
  }
  return 0;
}

// FlashAttention's window_size=(1023,0) counts the keys before and behind a query without its own.
bool states_pair(std::string_view text, std::string_view name) {
  const std::string plain = with_blanks(text);
  const std::size_t at = find_word(plain, name);
  const std::size_t value =
      at == plain.npos ? at : plain.find_first_not_of(" =:", at + name.size());
  return value != plain.npos && plain[value] == '(';
}

// Parts of a text between the commas and semicolons that stand in no bracket.
std::vector<std::string_view> window_parts(std::string_view text) {
  std::vector<std::string_view> parts;
  std::size_t begin = 0;
  int depth = 0;
  for (std::size_t at = 0; at <= text.size(); ++at) {
    const char c = at < text.size() ? text[at] : ';';
    depth += c == '(' ? 1 : c == ')' ? -1 : 0;
    if (c == ';' || c == '\n' || (c == ',' && depth <= 0)) {
      parts.push_back(text.substr(begin, at - begin));
      begin = at + 1;
    }
  }
  return parts;
}

// Names that other windows have, too ("throughput window size 128 samples"): of attention where
// their part of the text says so, as FlashAttention's pair does.
double shared_name_size(std::string_view text, bool of_attention) {
  constexpr auto kNames = std::to_array<std::string_view>({"window size", "local window"});
  constexpr auto kAttention =
      std::to_array<std::string_view>({"attention", "attn", "keys", "swa", "flash"});
  constexpr auto kOthers = std::to_array<std::string_view>(
      {"averag", "moving", "steps", "smooth", "sample", "profil", "timing"});
  for (const std::string_view part : window_parts(text)) {
    const bool pair = states_pair(part, kNames.front());
    const bool named = pair || of_attention || has_word(with_blanks(part), kAttention);
    const double size = number_set(part, kNames).value_or(0);
    if (named && size > 0 && !says_any(part, kOthers)) {
      return pair ? size + 1 : size;
    }
  }
  return 0;
}

// Of one cell.
OptionalCount window_in(std::string_view cell, bool of_attention) {
  constexpr auto kNames = std::to_array<std::string_view>(
      {"sliding window attention", "sliding window size", "sliding window", "swa",
       "local attention window", "attention window"});
  constexpr double kFewest = 64;  // half of gpt-oss's; less is a ratio ("5:1") or in units ("4K")
  constexpr double kMost = 1e9;
  const std::string said = asserted(to_lower(cell));
  double keys = number_set(said, kNames).value_or(0);
  keys = keys == 0 ? shared_name_size(said, of_attention) : keys;
  return keys >= kFewest && keys <= kMost && keys == std::floor(keys)
             ? OptionalCount(static_cast<std::int64_t>(keys))
             : std::nullopt;
}

}  // namespace

double capacity_factor(const Measurement& row) {
  constexpr auto kNames = std::to_array<std::string_view>({"capacity factor"});
  constexpr double kMost = 1e3;  // every expert has room for all
  const std::string text = asserted(to_lower(remarks_of(row)));
  const double named = number_set(text, kNames).value_or(0);
  const double factor = named > 0 ? named : short_factor(text);
  return factor > 0 && factor <= kMost ? factor : 0;
}

OptionalCount stated_window(const Measurement& row) {
  const OptionalCount remarked = window_in(remarks_of(row), false);
  return remarked ? remarked : window_in(row.attention_impl, true);
}

std::int64_t stated_global_interval(const Measurement& row) {
  constexpr auto kWindow = std::to_array<std::string_view>({"window", "windows", "swa", "local"});
  constexpr auto kTwo =
      std::to_array<std::string_view>({"every other layer", "alternating layers"});
  constexpr auto kShares = std::to_array<std::string_view>({"in", "window in"});
  const std::string text = remarks_of(row) + "; " + row.attention_impl;
  const std::vector<std::string> clauses = asserted_clauses(text);
  for (std::size_t at = 0; at < clauses.size(); ++at) {
    const std::string& clause = clauses[at];
    const bool of_window =
        has_word(clause, kWindow) || (at > 0 && has_word(clauses[at - 1], kWindow));
    const std::size_t of = clause.find(" of ");
    if (of_window && has_word(clause, kTwo)) {
      return 2;
    }
    if (!of_window || of == clause.npos || clause.find("layers", of) == clause.npos) {
      continue;
    }
    const std::int64_t some = static_cast<std::int64_t>(number_set(clause, kShares).value_or(0));
    const std::int64_t all = static_cast<std::int64_t>(
        number_set(clause.substr(of), std::to_array<std::string_view>({"of"})).value_or(0));
    if (some > 0 && all > some && all % (all - some) == 0) {
      return all / (all - some);
    }
  }
  return 0;
}

std::vector<std::string> window_remarks(const Measurement& row) {
  std::vector<std::string> lines;
  const OptionalCount window = window_in(remarks_of(row), false);
  if (window && *window < row.seq_len.value_or(0)) {
    lines.push_back(fmt::format("attention over a window of {} keys (notes)", *window));
  }
  if (const double factor = capacity_factor(row); factor > 0 && row.experts.value_or(0) > 1) {
    lines.push_back(fmt::format("capacity factor {:g} of experts (notes)", factor));
  }
  return lines;
}

}  // namespace orrery::studies
