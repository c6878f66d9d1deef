// SPDX-License-Identifier: Apache-2.0
// Typed cells of a CSV table. A blank cell (or "n/a") or an absent optional column is no value;
// anything else that is not a number of the stated range is an Error naming file, line and column.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/csv.hpp"

namespace orrery::studies {

class Cells {
 public:
  Cells(const CsvTable& table, std::size_t row) : table_(table), row_(row) {}

  std::string text(std::string_view column) const;  // the column must exist
  std::string optional_text(std::string_view column) const;
  std::optional<std::int64_t> count(std::string_view column, std::int64_t max) const;
  std::optional<bool> flag(std::string_view column) const;      // 0 or 1
  std::optional<double> number(std::string_view column) const;  // finite, not negative
  // Present and in range, or an Error.
  std::int64_t required_count(std::string_view column, std::int64_t max) const;
  double positive(std::string_view column) const;

 private:
  const CsvTable& table_;
  std::size_t row_;
};

// The file name without folder and extension.
std::string stem(std::string_view path);

}  // namespace orrery::studies
