// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/table_cells.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "base/error.hpp"
#include "base/limits.hpp"
#include "base/text.hpp"

namespace orrery::studies {
namespace {

bool is_blank(std::string_view cell) {
  const std::string lower = to_lower(cell);
  return lower.empty() || lower == "n/a" || lower == "na" || lower == "-";
}

double parse_number(const std::string& cell, const std::string& where) {
  double value = 0;
  const char* end = cell.data() + cell.size();
  const auto result = std::from_chars(cell.data(), end, value);
  if (result.ec != std::errc() || result.ptr != end || !std::isfinite(value)) {
    bad_input(where, fmt::format("\"{}\" is not a number", printable(cell, 60)));
  }
  if (value < 0 || value > limits::kMaxQuantity) {
    bad_input(where, fmt::format("{} is out of range", cell),
              fmt::format("0 to {:g}", limits::kMaxQuantity));
  }
  return value;
}

}  // namespace

std::string Cells::text(std::string_view column) const { return table_.cell(row_, column); }

std::string Cells::optional_text(std::string_view column) const {
  const std::string cell = table_.has_column(column) ? table_.cell(row_, column) : std::string();
  return is_blank(cell) ? std::string() : cell;
}

std::optional<double> Cells::number(std::string_view column) const {
  const std::string cell = optional_text(column);
  if (cell.empty()) {
    return std::nullopt;
  }
  return parse_number(cell, table_.where(row_, column));
}

std::optional<std::int64_t> Cells::count(std::string_view column, std::int64_t max) const {
  const std::optional<double> value = number(column);
  if (!value) {
    return std::nullopt;
  }
  if (*value != std::floor(*value) || *value > static_cast<double>(max)) {
    bad_input(table_.where(row_, column), fmt::format("{:g} is not a count", *value),
              fmt::format("a whole number from 0 to {}", max));
  }
  return static_cast<std::int64_t>(*value);
}

std::optional<bool> Cells::flag(std::string_view column) const {
  const std::string word = to_lower(optional_text(column));
  if (word == "true" || word == "yes" || word == "false" || word == "no") {
    return word == "true" || word == "yes";
  }
  const std::optional<std::int64_t> value = count(column, 1);
  return value ? std::optional<bool>(*value == 1) : std::nullopt;
}

std::int64_t Cells::required_count(std::string_view column, std::int64_t max) const {
  const std::optional<std::int64_t> value =
      table_.cell(row_, column).empty() ? std::nullopt : count(column, max);
  if (!value || *value < 1) {
    bad_input(table_.where(row_, column), "a positive whole number is missing");
  }
  return *value;
}

double Cells::positive(std::string_view column) const {
  const std::optional<double> value =
      table_.cell(row_, column).empty() ? std::nullopt : number(column);
  if (!value || *value <= 0) {
    bad_input(table_.where(row_, column), "a positive number is missing");
  }
  return *value;
}

std::string stem(std::string_view path) {
  const std::size_t slash = path.find_last_of('/');
  if (slash != std::string_view::npos) {
    path.remove_prefix(slash + 1);
  }
  return std::string(path.substr(0, path.find_last_of('.')));
}

}  // namespace orrery::studies
