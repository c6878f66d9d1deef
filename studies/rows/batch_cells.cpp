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

// What "k", "M", "billion" behind a number stand for; 0 for other words. Units of whole numbers and
// of halves are powers of two, as batches are: "0.5M" is 2^19, "3.2M" 3.2 million.
double token_unit(std::string_view word, double number) {
  constexpr auto kLetters = std::to_array<std::string_view>({"", "k", "m", "b"});
  constexpr auto kWords = std::to_array<std::string_view>({"", "thousand", "million", "billion"});
  const bool power =
      number == std::floor(number) || std::exp2(std::round(std::log2(number))) == number;
  for (std::size_t order = 0; order < kLetters.size(); ++order) {
    if (word == kLetters[order]) {
      return std::pow(power ? 1024.0 : 1000.0, static_cast<double>(order));
    }
    if (word == kWords[order]) {
      return std::pow(1000.0, static_cast<double>(order));
    }
  }
  return 0;
}

// "4M tokens", "~524,288 tokens/step", "4 million tokens per batch"; no value for other texts.
std::optional<double> tokens_in(std::string_view cell) {
  constexpr auto kSteps = std::to_array<std::string_view>(
      {"", "step", "batch", "iteration", "iter", "update", "global batch"});
  std::string plain = without_commas(to_lower(before_remark(cell)));
  std::string_view text = trim(plain);
  text.remove_prefix(text.starts_with('~') ? 1 : 0);
  double number = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view behind =
      trim(text.substr(static_cast<std::size_t>(read.ptr - text.data())));
  const std::size_t noun = behind.find("tok");
  if (read.ec != std::errc() || noun == behind.npos || number <= 0) {
    return std::nullopt;
  }
  std::string_view rest = behind.substr(noun + 3);
  rest.remove_prefix(rest.starts_with("ens") ? 3 : rest.starts_with("en") ? 2 : 0);
  rest = trim(rest);
  for (const std::string_view joint : {"/", "per ", "a ", "in a "}) {
    rest = trim(rest.substr(rest.starts_with(joint) ? joint.size() : 0));
  }
  const bool of_step = std::find(kSteps.begin(), kSteps.end(), rest) != kSteps.end();
  const double unit = token_unit(trim(behind.substr(0, noun)), number);
  return of_step && unit > 0 ? std::optional(number * unit) : std::nullopt;
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
  const bool named = std::find(kNouns.begin(), kNouns.end(), noun) != kNouns.end();
  return named && sequences > 0 && sequences <= limits::kMaxBatch && length == row.seq_len
             ? OptionalCount(sequences)
             : std::nullopt;
}

// Whole sequences: as many as the counts beside a rounded number of tokens make ("8.4M tokens" of
// 1 x 64 x 16 sequences), else the nearest number.
double sequences_of(double tokens_over_length, std::string_view column, const Measurement& row) {
  constexpr double kRounding = 0.01;  // of two printed digits
  const std::int64_t steps = row.micro_batch.value_or(0) * row.num_microbatches.value_or(0);
  const auto counted = static_cast<double>(steps * row.dp.value_or(0));
  const bool agree = column == "global_batch" && counted > 0 &&
                     std::abs(tokens_over_length / counted - 1) < kRounding;
  return agree ? counted : std::max(1.0, std::round(tokens_over_length));
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
  std::optional<double> tokens = tokens_in(cell);
  if (!tokens && mentions(before_remark(cell), "tok")) {
    tokens = cells.number(column);  // "2^20 tokens"
  }
  if (!tokens) {
    const OptionalCount value = round_count(cells, column, limits::kMaxBatch, kBinary, row);
    return value == 0 ? std::nullopt : value;
  }
  const auto length = static_cast<double>(row.seq_len.value_or(0));
  const double sequences = length > 0 ? sequences_of(*tokens / length, column, row) : 0;
  if (sequences < 1 || sequences > static_cast<double>(limits::kMaxBatch)) {
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
