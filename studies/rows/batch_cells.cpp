// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/batch_cells.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "base/limits.hpp"
#include "base/text.hpp"
#include "base/words.hpp"
#include "studies/rows/row_words.hpp"

namespace orrery::studies {
namespace {

// "524,288" as "524288".
std::string without_commas(std::string_view text) {
  std::string plain;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const bool separates = text[at] == ',' && at > 0 && at + 1 < text.size() &&
                           is_digit(text[at - 1]) && is_digit(text[at + 1]);
    plain.append(separates ? 0 : 1, text[at]);
  }
  return plain;
}

// Tokens as they are printed, half a unit of the last digit, and where one digit is printed what
// it is of 2^20 for a million (0 elsewhere).
struct PrintedTokens {
  double tokens = 0;
  double rounding = 0;
  double binary = 0;
};

// Whether thousands are those of 1024, as of batches that are a power of two or few of them: 512,
// 48, not 524.
bool counts_in_1024(double number) {
  constexpr std::int64_t kFew = 16;
  constexpr double kMost = 1e12;  // beyond any batch
  if (!(number >= 1 && number <= kMost)) {
    return false;
  }
  auto odd = static_cast<std::int64_t>(number);
  while (odd > 0 && odd % 2 == 0) {
    odd /= 2;
  }
  return number == std::floor(number) && odd < kFew;
}

// What "k", "M", "billion" behind a number stand for; 0 for other words: "4M" is 2^22, "0.5M" 2^19,
// "3.2M" 3.2 million.
double token_unit(std::string_view word, double number) {
  constexpr auto kLetters = std::to_array<std::string_view>({"", "k", "m", "b"});
  constexpr auto kWords = std::to_array<std::string_view>({"", "thousand", "million", "billion"});
  const bool half = std::exp2(std::round(std::log2(number))) == number;
  const bool binary = half || counts_in_1024(number);
  for (std::size_t order = 0; order < kLetters.size(); ++order) {
    if (word == kLetters[order]) {
      return std::pow(binary ? 1024.0 : 1000.0, static_cast<double>(order));
    }
    if (word == kWords[order]) {
      return std::pow(1000.0, static_cast<double>(order));
    }
  }
  return 0;
}

// "4M tokens", "~524,288 tokens/step", "4 million tokens per batch"; no value for other texts.
std::optional<PrintedTokens> tokens_in(std::string_view cell) {
  constexpr auto kSteps = std::to_array<std::string_view>(
      {"", "step", "batch", "iteration", "iter", "update", "global batch"});
  std::string plain = without_commas(to_lower(before_remark(cell)));
  std::string_view text = trim(plain);
  text.remove_prefix(text.starts_with('~') ? 1 : 0);
  double number = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view printed = text.substr(0, static_cast<std::size_t>(read.ptr - text.data()));
  const std::string_view behind = trim(text.substr(printed.size()));
  const std::size_t noun = behind.find("tok");
  if (read.ec != std::errc() || noun == behind.npos || !(number > 0)) {
    return std::nullopt;
  }
  std::string_view rest = behind.substr(noun + 3);
  rest.remove_prefix(rest.starts_with("ens") ? 3 : rest.starts_with("en") ? 2 : 0);
  rest = trim(rest);
  for (const std::string_view joint : {"/", "per ", "a ", "in a "}) {
    rest = trim(rest.substr(rest.starts_with(joint) ? joint.size() : 0));
  }
  const bool of_step = is_among(rest, kSteps);
  const double unit = token_unit(trim(behind.substr(0, noun)), number);
  const std::size_t point = printed.find('.');
  const std::size_t decimals = point == printed.npos ? 0 : printed.size() - point - 1;
  const double digit = std::pow(10.0, -static_cast<double>(decimals));
  const bool one_digit =
      std::ranges::count_if(printed, [](char c) { return c > '0'; }) == 1 && printed.back() != '0';
  const double binary = std::pow(1024.0, std::round(std::log10(unit) / 3));
  const double rounded = one_digit && unit > 1 ? number * binary : 0;
  return of_step && unit > 0
             ? std::optional(PrintedTokens{number * unit, digit * unit / 2, rounded})
             : std::nullopt;
}

// "4M", "2.1 million": nothing but tokens comes in millions to a batch.
bool counts_millions(std::string_view cell) {
  constexpr auto kMillions = std::to_array<std::string_view>({"m", "million"});
  const std::string plain = to_lower(before_remark(cell));
  double number = 0;
  const auto read = std::from_chars(plain.data(), plain.data() + plain.size(), number);
  const std::string_view behind(read.ptr, plain.data() + plain.size());
  return read.ec == std::errc() && is_among(trim(behind), kMillions);
}

// "128 seqs x 4096", "128 x 4096": sequences of the row's length; no value for other texts.
OptionalCount sequences_in(std::string_view cell, const Measurement& row) {
  constexpr auto kNouns =
      std::to_array<std::string_view>({"seqs", "sequences", "samples", "seq", ""});
  const std::string plain = without_commas(to_lower(before_remark(cell)));
  const std::vector<std::string_view> factors = split(plain, 'x');
  std::int64_t sequences = 0;
  std::int64_t length = 0;
  if (factors.size() != 2) {
    return std::nullopt;
  }
  const std::string_view first = trim(factors[0]);
  const std::string_view second = trim(factors[1]);
  const auto read = std::from_chars(first.data(), first.data() + first.size(), sequences);
  const std::string_view noun =
      trim(first.substr(static_cast<std::size_t>(read.ptr - first.data())));
  std::from_chars(second.data(), second.data() + second.size(), length);
  const bool named = is_among(noun, kNouns);
  return named && sequences > 0 && sequences <= limits::kMaxBatch && length == row.seq_len
             ? OptionalCount(sequences)
             : std::nullopt;
}

// Sequences that all ranks run at once; 1 where the row does not say.
std::int64_t sequences_at_once(const Measurement& row) {
  const std::int64_t others = row.tp.value_or(1) * row.pp.value_or(1) * row.cp.value_or(1);
  const std::int64_t gpus = row.tp && row.pp ? row.gpus.value_or(0) : 0;
  const std::int64_t ranks = gpus % others == 0 ? gpus / others : 0;
  return std::max<std::int64_t>(
      1, row.micro_batch.value_or(1) * row.dp.value_or(std::max<std::int64_t>(1, ranks)));
}

// Whole sequences: as many as the counts beside a rounded number of tokens make ("8.4M tokens" of
// 1 x 64 x 16 sequences), else of those that round to it a power of two ("2.1M" is 2^21), that of
// 2^20 ("4 million") or the nearest number that the ranks share evenly, else the nearest number.
double sequences_of(const PrintedTokens& printed, double length, std::string_view column,
                    const Measurement& row) {
  constexpr double kRounding = 0.01;  // of two printed digits
  constexpr double kFraction = 0.03;  // one printed digit may be of any number
  const double sequences = printed.tokens / length;
  const double slack = printed.rounding / length;
  const double nearest = std::max(1.0, std::round(sequences));
  const std::int64_t steps = row.micro_batch.value_or(0) * row.num_microbatches.value_or(0);
  const auto counted = static_cast<double>(steps * row.dp.value_or(0));
  if (column != "global_batch" || sequences < 1) {
    return nearest;
  }
  if (counted > 0 && std::abs(sequences / counted - 1) < kRounding) {
    return counted;
  }
  const auto round = static_cast<double>(sequences_at_once(row));
  const double power = std::exp2(std::round(std::log2(sequences)));
  const double exact = slack < kFraction * sequences ? power : 0;
  const double multiple = std::round(sequences / round) * round;
  for (const double whole : {exact, printed.binary / length, multiple}) {
    if (whole >= 1 && std::abs(whole - sequences) <= slack && std::fmod(whole, round) == 0) {
      return whole;
    }
  }
  return nearest;
}

}  // namespace

OptionalCount round_count(const Cells& cells, std::string_view column, std::int64_t max,
                          NumberUnits units, Measurement& row) {
  const OptionalCount value = cells.count(column, max, units);
  const std::string cell = cells.optional_text(column);
  const bool has_unit = std::any_of(units.begin(), units.end(), [&](const NumberUnit& unit) {
    return value && to_lower(cell).find(unit.letter) != cell.npos;
  });
  if (has_unit) {
    row.remarks.push_back(fmt::format("{} {} as {}", column, printable(cell, 60), *value));
  }
  return value;
}

OptionalCount read_batch(const Cells& cells, std::string_view column, Measurement& row) {
  const std::string cell = cells.optional_text(column);
  if (const OptionalCount sequences = sequences_in(cell, row)) {
    row.remarks.push_back(
        fmt::format("{} {} as {}", column, printable(cell, 60), counted(*sequences, "sequence")));
    return sequences;
  }
  const bool bare = column == "global_batch" && counts_millions(cell);
  std::optional<PrintedTokens> tokens =
      tokens_in(bare ? std::string(before_remark(cell)) + " tokens" : cell);
  if (!tokens && mentions(before_remark(cell), "tok")) {
    tokens = PrintedTokens{cells.number(column).value_or(0), 0};  // "2^20 tokens"
  }
  if (!tokens) {
    const OptionalCount value = round_count(cells, column, limits::kMaxBatch, kBinary, row);
    return value == 0 ? std::nullopt : value;
  }
  const auto length = static_cast<double>(row.seq_len.value_or(0));
  const double sequences = length > 0 ? sequences_of(*tokens, length, column, row) : 0;
  if (!(sequences >= 1 && sequences <= static_cast<double>(limits::kMaxBatch))) {
    row.unknown = length > 0
                      ? fmt::format("{} \"{}\" is too large", column, printable(cell, 60))
                      : fmt::format("{} \"{}\" without seq_len", column, printable(cell, 60));
    return std::nullopt;
  }
  const auto count = static_cast<std::int64_t>(sequences);
  row.remarks.push_back(
      fmt::format("{} {} as {}", column, printable(cell, 60), counted(count, "sequence")));
  return count;
}

}  // namespace orrery::studies
