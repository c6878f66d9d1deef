// SPDX-License-Identifier: Apache-2.0
// Typed cells of a CSV table. A blank cell (or "n/a") or an absent optional column is no value;
// anything else that is not a number of the stated range is an Error naming file, line and column.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/csv.hpp"

namespace orrery::studies {

// What a flag is called beside 0 and 1, yes and no, on and off; in lower case.
struct FlagWords {
  std::span<const std::string_view> yes = {};
  std::span<const std::string_view> no = {};
};

// A letter behind a number and what it multiplies by, in lower case: "4K".
struct NumberUnit {
  char letter = ' ';
  double factor = 1;
};
using NumberUnits = std::span<const NumberUnit>;

class Cells {
 public:
  Cells(const CsvTable& table, std::size_t row) : table_(table), row_(row) {}

  // As a keyboard has its signs ("8x" for "8×") and without the marks of footnotes behind it; the
  // column must exist.
  std::string text(std::string_view column) const;
  std::string optional_text(std::string_view column) const;
  std::string printed(std::string_view column) const;  // as it stands; "" where blank or absent
  std::optional<std::int64_t> count(std::string_view column, std::int64_t max,
                                    NumberUnits units = {}) const;
  // Of parallelism; 0, as some tables write what a run does without, is a blank.
  std::optional<std::int64_t> degree(std::string_view column, std::int64_t max) const;
  std::optional<bool> flag(std::string_view column, FlagWords words = {}) const;
  bool has(std::string_view column) const { return table_.has_column(column); }
  const CsvTable& table() const { return table_; }
  std::size_t row() const { return row_; }
  bool is_open(std::string_view column) const;  // blank, "auto", "varies"
  // Finite, not negative.
  std::optional<double> number(std::string_view column, NumberUnits units = {}) const;
  // Present and in range, or an Error.
  std::int64_t required_count(std::string_view column, std::int64_t max) const;
  // The unit may stand behind.
  double positive(std::string_view column, std::string_view unit = {}) const;
  // Of a part of the column's cell.
  double positive_in(std::string_view text, std::string_view column) const;

  // An Error: the cell holds what it cannot.
  [[noreturn]] void refuse(std::string_view column, std::string_view what,
                           std::string_view expected) const;

 private:
  const CsvTable& table_;
  std::size_t row_;
};

// The file name without folder and extension.
std::string stem(std::string_view path);

}  // namespace orrery::studies
