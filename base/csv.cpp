// SPDX-License-Identifier: Apache-2.0
#include "base/csv.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/error.hpp"
#include "base/files.hpp"
#include "base/limits.hpp"
#include "base/text.hpp"

namespace orrery {
namespace {

class Scanner {
 public:
  Scanner(std::string_view text, std::string_view name) : text_(text), name_(name) {}

  bool at_end() const { return text_.empty(); }
  int line() const { return line_; }

  // The cells of the next record; a blank line gives one empty cell.
  std::vector<std::string> record() {
    std::vector<std::string> cells;
    bool more = true;
    while (more) {
      cells.emplace_back(trim(cell()));
      if (std::ssize(cells) > limits::kMaxCsvColumns) {
        fail(fmt::format("more than {} columns", limits::kMaxCsvColumns));
      }
      more = !text_.empty() && text_.front() == ',';
      if (more) {
        text_.remove_prefix(1);
      }
    }
    end_line();
    return cells;
  }

  [[noreturn]] void fail(std::string_view message, std::string_view hint = {}) const {
    bad_input(fmt::format("{}:{}", printable(name_, 800), line_), message, hint);
  }

 private:
  std::string cell() {
    if (!text_.empty() && text_.front() == '"') {
      return quoted_cell();
    }
    const std::size_t end = std::min(text_.find_first_of(",\r\n\""), text_.size());
    if (end < text_.size() && text_[end] == '"') {
      fail("quote inside a cell that is not quoted", "quote the whole cell and double the quote");
    }
    std::string result(text_.substr(0, end));
    check_length(result);
    text_.remove_prefix(end);
    return result;
  }

  std::string quoted_cell() {
    std::string result;
    do {
      text_.remove_prefix(1);  // the opening quote, or the second of a doubled one
      const std::size_t end = text_.find('"');
      if (end == std::string_view::npos) {
        fail("quoted cell without an end", "a closing quote is missing");
      }
      result += text_.substr(0, end);
      check_length(result);
      text_.remove_prefix(end + 1);
      if (!text_.empty() && text_.front() == '"') {
        result += '"';
      }
    } while (!text_.empty() && text_.front() == '"');
    if (!text_.empty() && text_.find_first_of(",\r\n") != 0) {
      fail("text after a closing quote", "double a quote that belongs to the cell");
    }
    inner_lines_ += static_cast<int>(std::count(result.begin(), result.end(), '\n'));
    return result;
  }

  void end_line() {
    if (text_.starts_with("\r\n")) {
      text_.remove_prefix(2);
    } else if (!text_.empty()) {
      text_.remove_prefix(1);
    }
    line_ += 1 + inner_lines_;
    inner_lines_ = 0;
  }

  void check_length(const std::string& cell) const {
    if (std::ssize(cell) > limits::kMaxStringBytes) {
      fail(fmt::format("cell of more than {} bytes", limits::kMaxStringBytes));
    }
  }

  std::string_view text_;
  std::string_view name_;
  int line_ = 1;
  int inner_lines_ = 0;  // line ends inside quoted cells of this record
};

void check_header(const std::vector<std::string>& header, const Scanner& scanner) {
  std::vector<std::string> sorted = header;
  std::sort(sorted.begin(), sorted.end());
  if (sorted.front().empty()) {
    scanner.fail("column without a name", "the first line names every column");
  }
  const std::size_t sign =
      header.size() == 1 ? header.front().find_first_of(";\t|") : std::string::npos;
  if (sign != std::string::npos) {
    const char separator = header.front()[sign];
    scanner.fail(
        fmt::format("columns are separated by {}",
                    separator == '\t' ? std::string("tabs") : fmt::format("'{}'", separator)),
        "separate them by commas");
  }
  const auto repeated = std::adjacent_find(sorted.begin(), sorted.end());
  if (repeated != sorted.end()) {
    scanner.fail(fmt::format("two columns are named \"{}\"", printable(*repeated)));
  }
}

// A column by its name, or else by its name in capitals.
std::vector<std::string>::const_iterator find_column(const std::vector<std::string>& header,
                                                     std::string_view column) {
  const auto found = std::find(header.begin(), header.end(), column);
  return found != header.end()
             ? found
             : std::find_if(header.begin(), header.end(),
                            [column](const std::string& name) { return to_lower(name) == column; });
}

std::size_t column_index(const CsvTable& table, std::string_view column) {
  const std::vector<std::string>& header = table.header();
  const auto found = find_column(header, column);
  if (found == header.end()) {
    bad_input(table.name(), fmt::format("no column \"{}\"", printable(column)),
              nearest_hint(column, header));
  }
  return static_cast<std::size_t>(found - header.begin());
}

}  // namespace

bool CsvTable::has_column(std::string_view name) const {
  return find_column(header_, name) != header_.end();
}

void CsvTable::expect_columns(std::span<const std::string_view> known) const {
  for (const std::string& column : header_) {
    if (std::find(known.begin(), known.end(), column) == known.end() &&
        std::find(known.begin(), known.end(), to_lower(column)) == known.end()) {
      const std::vector<std::string> names(known.begin(), known.end());
      bad_input(name_, fmt::format("unknown column \"{}\"", printable(column)),
                nearest_hint(column, names));
    }
  }
}

const std::string& CsvTable::cell(std::size_t row, std::string_view column) const {
  ORRERY_CHECK(row < rows_.size(), "row of a CSV table");
  return rows_[row][column_index(*this, column)];
}

std::string CsvTable::where(std::size_t row, std::string_view column) const {
  ORRERY_CHECK(row < rows_.size(), "row of a CSV table");
  return fmt::format("{}:{}: {}", name_, lines_[row], column);
}

int CsvTable::line(std::size_t row) const {
  ORRERY_CHECK(row < rows_.size(), "row of a CSV table");
  return lines_[row];
}

CsvTable parse_csv(std::string_view text, std::string_view name) {
  if (trim(text).empty()) {
    bad_input(name, "empty table", "the first line names the columns");
  }
  if (text.find('\0') != std::string_view::npos) {
    bad_input(name, "NUL byte in a table", "is this a binary file?");
  }
  Scanner scanner(text, name);
  CsvTable table;
  table.name_ = std::string(name);
  const Scanner first = scanner;
  table.header_ = scanner.record();
  // A comma that ends the header names no column.
  const bool ends_in_comma = table.header_.size() > 1 && table.header_.back().empty();
  if (ends_in_comma) {
    table.header_.pop_back();
  }
  check_header(table.header_, first);
  const std::int64_t max_rows = limits::kMaxCsvCells / std::ssize(table.header_);
  while (!scanner.at_end()) {
    const Scanner before = scanner;
    std::vector<std::string> cells = scanner.record();
    if (cells.size() == 1 && cells.front().empty() && table.header_.size() > 1) {
      continue;  // a blank line
    }
    if (ends_in_comma && cells.size() == table.header_.size() + 1 && cells.back().empty()) {
      cells.pop_back();
    }
    if (cells.size() != table.header_.size()) {
      before.fail(fmt::format("{} cells", cells.size()),
                  fmt::format("the header has {}", table.header_.size()));
    }
    if (std::ssize(table.rows_) >= max_rows) {
      before.fail(fmt::format("more than {} cells", limits::kMaxCsvCells));
    }
    table.lines_.push_back(before.line());
    table.rows_.push_back(std::move(cells));
  }
  return table;
}

CsvTable read_csv_file(const std::string& path) {
  return parse_csv(read_file(path, limits::kMaxTableFileBytes),
                   path == "-" ? "standard input" : path);
}

}  // namespace orrery
