// SPDX-License-Identifier: Apache-2.0
// Plain-text tables for people: aligned columns, numbers right-aligned, a rule under the header.
#pragma once

#include <string>
#include <vector>

namespace orrery {

enum class Align { Left, Right };

class TextTable {
 public:
  struct Column {
    std::string title;
    Align align = Align::Left;
  };
  explicit TextTable(std::vector<Column> columns);
  void add_row(std::vector<std::string> cells);  // as many cells as columns
  void add_rule();
  std::string text() const;  // ends with a newline; widths count UTF-8 code points

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;  // an empty row is a rule
};

}  // namespace orrery
