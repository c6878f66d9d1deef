// SPDX-License-Identifier: Apache-2.0
#include "base/table.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/text.hpp"

namespace orrery {
namespace {

constexpr int kMaxCellBytes = 400;

std::size_t display_width(std::string_view text) {
  const auto is_start = [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; };
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), is_start));
}

void append_line(std::string& out, std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  out += line + "\n";
}

}  // namespace

TextTable::TextTable(std::vector<Column> columns) : columns_(std::move(columns)) {
  ORRERY_CHECK(!columns_.empty(), "a table without columns");
}

void TextTable::add_row(std::vector<std::string> cells) {
  ORRERY_CHECK(cells.size() == columns_.size(), "a row has as many cells as the table has columns");
  for (std::string& cell : cells) {
    cell = printable(cell, kMaxCellBytes);
  }
  rows_.push_back(std::move(cells));
}

void TextTable::add_rule() { rows_.emplace_back(); }

std::string TextTable::text() const {
  std::vector<std::size_t> widths;
  std::vector<std::string> titles;
  std::size_t total = 2 * (columns_.size() - 1);
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    std::size_t width = display_width(columns_[i].title);
    for (const std::vector<std::string>& row : rows_) {
      width = row.empty() ? width : std::max(width, display_width(row[i]));
    }
    widths.push_back(width);
    titles.push_back(columns_[i].title);
    total += width;
  }
  const auto line_of = [&](const std::vector<std::string>& cells) {
    std::string line;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      const std::string padding(widths[i] - display_width(cells[i]), ' ');
      line += i == 0 ? "" : "  ";
      line += columns_[i].align == Align::Right ? padding + cells[i] : cells[i] + padding;
    }
    return line;
  };
  const std::string rule(total, '-');
  std::string out;
  append_line(out, line_of(titles));
  append_line(out, rule);
  for (const std::vector<std::string>& row : rows_) {
    append_line(out, row.empty() ? rule : line_of(row));
  }
  return out;
}

}  // namespace orrery
