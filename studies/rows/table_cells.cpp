// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/table_cells.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include "base/error.hpp"
#include "base/limits.hpp"
#include "base/text.hpp"
#include "studies/rows/count_words.hpp"
#include "studies/rows/row_words.hpp"

namespace orrery::studies {
namespace {

bool is_one_of(std::string_view cell, std::span<const std::string_view> words) {
  return std::find(words.begin(), words.end(), to_lower(trim(cell))) != words.end();
}

bool is_blank(std::string_view cell) {
  constexpr auto kWords = std::to_array<std::string_view>({"",
                                                           "n/a",
                                                           "na",
                                                           "-",
                                                           "--",
                                                           "?",
                                                           "null",
                                                           "not stated",
                                                           "unstated",
                                                           "unknown",
                                                           "not reported",
                                                           "not given",
                                                           "not specified",
                                                           "unspecified",
                                                           "n.a.",
                                                           "tbd",
                                                           "nan",
                                                           "not mentioned",
                                                           "not disclosed",
                                                           "undisclosed",
                                                           "not known",
                                                           "none stated",
                                                           "none reported",
                                                           "none given",
                                                           "none mentioned"});
  return is_one_of(cell, kWords);
}

// A number that somebody else chooses is no number of the row.
bool states_no_number(std::string_view cell) {
  constexpr auto kWords = std::to_array<std::string_view>(
      {"none", "auto", "default", "varies", "various", "varying", "tuned"});
  return is_one_of(cell, kWords);
}

// "1,024" and "1 024" as 1024; other separators stay and make the cell no number.
std::string without_separators(std::string number) {
  const std::size_t first = number.find_first_of(", _");
  if (first == 0 || first > 3) {  // or nowhere
    return number;
  }
  const char separator = number[first];
  for (std::size_t at = first; at != number.npos; at = number.find(separator, at + 1)) {
    const std::string_view group = std::string_view(number).substr(at + 1, 4);
    const std::size_t digits = std::min(group.size(), group.find_first_not_of("0123456789"));
    if (digits != 3) {
      return number;
    }
  }
  std::erase(number, separator);
  return number;
}

struct CountedNoun {
  std::string_view column;
  std::string_view noun;
};
constexpr auto kNouns = std::to_array<CountedNoun>({{"seq_len", "tokens"},
                                                    {"seq_len", "tok"},
                                                    {"gpus", "gpus"},
                                                    {"gpus_per_node", "gpus"},
                                                    {"gpus", "gcds"},
                                                    {"gpus_per_node", "gcds"},
                                                    {"params_b", "params"},
                                                    {"params_b", "parameters"},
                                                    {"layers", "layers"},
                                                    {"heads", "heads"},
                                                    {"experts", "experts"},
                                                    {"pp", "stages"},
                                                    {"vpp", "chunks"},
                                                    {"tp", "way"},
                                                    {"pp", "way"},
                                                    {"dp", "way"},
                                                    {"cp", "way"},
                                                    {"ep", "way"},
                                                    {"micro_batch", "sequences"},
                                                    {"micro_batch", "seqs"},
                                                    {"micro_batch", "samples"},
                                                    {"micro_batch", "sequence"},
                                                    {"micro_batch", "seq"},
                                                    {"micro_batch", "sample"},
                                                    {"micro_batch", "per gpu"},
                                                    {"micro_batch", "/gpu"},
                                                    {"micro_batch", "per device"},
                                                    {"micro_batch", "/device"},
                                                    {"micro_batch", "tokens"},
                                                    {"micro_batch", "tok"},
                                                    {"global_batch", "sequences"},
                                                    {"global_batch", "seqs"},
                                                    {"global_batch", "samples"},
                                                    {"global_batch", "tokens"},
                                                    {"global_batch", "tok"}});

// "TP=2", "tp2", "GAS 32": the column's name, or what scripts call it, before its number.
std::string_view without_name(std::string_view cell, std::string_view column) {
  constexpr auto kShort = std::to_array<CountedNoun>(
      {{"vpp", "v"}, {"num_microbatches", "gas"}, {"num_microbatches", "ga"}});
  std::string_view name = column;
  const std::string lower = to_lower(cell);
  for (const auto& [named, word] : kShort) {
    const bool shorter = named == column && lower.starts_with(word) && !lower.starts_with(name);
    name = shorter ? word : name;
  }
  if (!lower.starts_with(name)) {
    return cell;
  }
  std::string_view number = trim(cell.substr(name.size()));
  number = trim(number.substr(number.starts_with('=') || number.starts_with(':') ? 1 : 0));
  return !number.empty() && is_digit(number.front()) ? number : cell;
}

// "4096 tokens", "64 GPUs", "8-way": what a column counts anyway.
std::string_view without_noun(std::string_view cell, std::string_view column) {
  if (cell.ends_with(')')) {
    cell = trim(cell.substr(0, cell.find('(')));
  }
  cell = without_name(cell, column);
  for (const auto& [counter, noun] : kNouns) {
    if (column == counter && to_lower(cell).ends_with(noun)) {
      cell.remove_suffix(noun.size());
      cell.remove_suffix(noun == "way" && cell.ends_with('-') ? 1 : 0);
      return without_count_words(trim(cell), column);  // "1 sample per GPU"
    }
  }
  return without_count_words(cell, column);
}

// Takes the unit off the end of a number.
double take_unit(std::string& number, NumberUnits units) {
  constexpr auto kWords = std::to_array<std::pair<std::string_view, char>>(
      {{" thousand", 'k'}, {" million", 'm'}, {" billion", 'b'}, {" trillion", 't'}});
  for (const auto& [word, letter] : kWords) {
    if (to_lower(number).ends_with(word)) {
      number.resize(number.size() - word.size());
      number += letter;  // "70 billion"
    }
  }
  if (number.size() > 2 && number.ends_with('i') && is_letter(number[number.size() - 2])) {
    number.pop_back();  // "8Ki"
  }
  const char last = number.size() > 1 ? to_lower(number).back() : ' ';
  for (const NumberUnit& unit : units) {
    if (last == unit.letter) {
      number.pop_back();
      number = trim(number);
      return unit.factor;
    }
  }
  return 1;
}

// "~1,024 (inferred)" is 1024; a percent sign stays.
std::string plain_number(std::string_view cell) {
  constexpr auto kAbout = std::to_array<std::string_view>({"~", "\xE2\x89\x88"});
  cell = trim(cell);
  if (cell.ends_with(')')) {
    cell = trim(cell.substr(0, cell.find('(')));
  }
  for (const std::string_view sign : kAbout) {
    if (cell.starts_with(sign)) {
      cell.remove_prefix(sign.size());
    }
  }
  return without_separators(std::string(trim(cell)));
}

bool is_percentage(std::string_view cell) { return plain_number(cell).ends_with('%'); }

// "2^20", "2**20"; no value for other texts.
std::optional<double> power_of(std::string_view number) {
  const std::size_t sign = number.find_first_of("^*");
  const std::size_t behind = sign == number.npos ? sign : number.find_first_not_of("^*", sign);
  const std::string_view between = number.substr(std::min(sign, number.size()), behind - sign);
  if (behind == number.npos || (between != "^" && between != "**")) {
    return std::nullopt;
  }
  int base = 0;
  int exponent = 0;
  const char* const end = number.data() + number.size();
  const auto first = std::from_chars(number.data(), number.data() + sign, base);
  const auto second = std::from_chars(number.data() + behind, end, exponent);
  const bool whole = first.ec == std::errc() && first.ptr == number.data() + sign &&
                     second.ec == std::errc() && second.ptr == end;
  return whole ? std::optional(std::pow(base, exponent)) : std::nullopt;
}

double parse_cell(std::string_view cell, NumberUnits units, const std::string& where) {
  double value = 0;
  std::string number = plain_number(cell);
  const double factor = take_unit(number, units);
  const bool percent = is_percentage(cell);
  if (percent) {
    number = trim(std::string_view(number).substr(0, number.size() - 1));
  }
  const char* const end = number.data() + number.size();
  const auto result = std::from_chars(number.data(), end, value);
  const bool plain = result.ec == std::errc() && result.ptr == end;
  value = plain ? value : power_of(number).value_or(std::nan(""));
  if (!std::isfinite(value)) {
    bad_input(where, fmt::format("\"{}\" is not a number", printable(cell, 60)));
  }
  if (value < 0 || value * factor > limits::kMaxQuantity) {
    bad_input(where, fmt::format("{} is out of range", cell),
              fmt::format("0 to {:g}", limits::kMaxQuantity));
  }
  return percent ? value / 100 : value * factor;
}

}  // namespace

std::string Cells::text(std::string_view column) const {
  return with_letter_times(without_footnote(with_typed_signs(table_.cell(row_, column))));
}

std::string Cells::optional_text(std::string_view column) const {
  const std::string cell = table_.has_column(column) ? text(column) : std::string();
  return is_blank(cell) ? std::string() : cell;
}

std::string Cells::printed(std::string_view column) const {
  const std::string cell = table_.has_column(column) ? table_.cell(row_, column) : std::string();
  return is_blank(with_typed_signs(cell)) ? std::string() : cell;
}

bool Cells::is_open(std::string_view column) const {
  const std::string cell = optional_text(column);
  return cell.empty() || states_no_number(cell);
}

std::optional<double> Cells::number(std::string_view column, NumberUnits units) const {
  if (is_open(column)) {
    return std::nullopt;
  }
  const std::string cell = text(column);
  return parse_cell(without_noun(cell, column), units, table_.where(row_, column));
}

std::optional<std::int64_t> Cells::count(std::string_view column, std::int64_t max,
                                         NumberUnits units) const {
  const std::optional<double> value = number(column, units);
  if (!value) {
    return std::nullopt;
  }
  if (is_percentage(text(column)) || *value != std::floor(*value) ||
      *value > static_cast<double>(max)) {
    refuse(column, "is not a count", fmt::format("a whole number from 0 to {}", max));
  }
  return static_cast<std::int64_t>(*value);
}

std::optional<std::int64_t> Cells::degree(std::string_view column, std::int64_t max) const {
  const std::optional<std::int64_t> value = count(column, max);
  return value == 0 ? std::nullopt : value;
}

void Cells::refuse(std::string_view column, std::string_view what,
                   std::string_view expected) const {
  bad_input(table_.where(row_, column), fmt::format("{} {}", printable(text(column), 60), what),
            expected);
}

std::optional<bool> Cells::flag(std::string_view column, FlagWords words) const {
  constexpr auto kYes = std::to_array<std::string_view>(
      {"true", "yes", "on", "enabled", "y", "t", "\xE2\x9C\x93", "\xE2\x9C\x94"});
  constexpr auto kNo = std::to_array<std::string_view>(
      {"false", "no", "off", "disabled", "n", "f", "\xE2\x9C\x97", "\xE2\x9C\x98"});
  std::string word = optional_text(column);
  if (word.ends_with(')')) {
    word = before_remark(word);  // "on (TP)"
  }
  const std::string_view first = std::string_view(word).substr(0, word.find_first_of(" ,;:"));
  if (first.size() > 1 && (is_one_of(first, kYes) || is_one_of(first, kNo))) {
    word = first;  // "enabled with TP"
  }
  if (is_one_of(word, kYes) || is_one_of(word, words.yes)) {
    return true;
  }
  if (is_one_of(word, kNo) || is_one_of(word, words.no)) {
    return false;
  }
  if (!is_open(column) && word.find_first_of("0123456789") == word.npos) {
    refuse(column, "is no flag", "0, 1, yes or no");
  }
  const std::optional<std::int64_t> value = count(column, 1);
  return value ? std::optional<bool>(*value == 1) : std::nullopt;
}

std::int64_t Cells::required_count(std::string_view column, std::int64_t max) const {
  const std::int64_t value = text(column).empty() ? 0 : count(column, max).value_or(0);
  if (value < 1) {
    bad_input(table_.where(row_, column), "a positive whole number is missing");
  }
  return value;
}

double Cells::positive(std::string_view column, std::string_view unit) const {
  const std::string whole = text(column);
  std::string_view cell = whole;
  cell.remove_suffix(cell.ends_with(unit) ? unit.size() : 0);
  return positive_in(is_open(column) ? std::string_view("0") : trim(cell), column);
}

double Cells::positive_in(std::string_view text, std::string_view column) const {
  const double value = parse_cell(text, {}, table_.where(row_, column));
  if (value <= 0) {
    bad_input(table_.where(row_, column), "a positive number is missing");
  }
  return value;
}

std::string stem(std::string_view path) {
  const std::size_t slash = path.find_last_of('/');
  if (slash != std::string_view::npos) {
    path.remove_prefix(slash + 1);
  }
  return std::string(path.substr(0, path.find_last_of('.')));
}

}  // namespace orrery::studies
