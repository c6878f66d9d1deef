// SPDX-License-Identifier: Apache-2.0
// RFC 4180 tables with a header row (quoted cells, doubled quotes, CRLF), bounded by limits.hpp. A
// comma may end the header, and the rows below it then.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace orrery {

class CsvTable {
 public:
  const std::vector<std::string>& header() const { return header_; }
  std::size_t num_rows() const { return rows_.size(); }
  // Columns are found by their names in lower case where the header has capitals, too.
  bool has_column(std::string_view name) const;
  // Error for a column that is not among these, with the nearest of them.
  void expect_columns(std::span<const std::string_view> known) const;
  // The cell, trimmed; Error naming the file and the nearest column when the column is absent.
  const std::string& cell(std::size_t row, std::string_view column) const;
  std::string where(std::size_t row, std::string_view column) const;  // "file:line: column"
  int line(std::size_t row) const;                                    // in the file, from 1
  const std::string& name() const { return name_; }

 private:
  friend CsvTable parse_csv(std::string_view text, std::string_view name);
  std::string name_;
  std::vector<std::string> header_;
  std::vector<std::vector<std::string>> rows_;
  std::vector<int> lines_;
};

CsvTable parse_csv(std::string_view text, std::string_view name);
CsvTable read_csv_file(const std::string& path);

}  // namespace orrery
