// SPDX-License-Identifier: Apache-2.0
// Readers of CSV tables: recognised by the names in their first line, read row by row. A reader
// states its columns and what one row becomes; everything else (opening, line numbers, faults,
// --partial) is here.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/csv.hpp"
#include "calibrate/printed.hpp"
#include "calibrate/reading_builder.hpp"

namespace orrery::calibrate {

class TableRow {
 public:
  TableRow(const CsvTable& table, std::size_t row, ReadingBuilder& builder)
      : table_(table), row_(row), builder_(builder) {}

  bool has(std::string_view column) const { return table_.has_column(column); }
  const std::string& text(std::string_view column) const { return table_.cell(row_, column); }
  // File, line and column, for messages.
  std::string where(std::string_view column) const { return table_.where(row_, column); }
  double number(std::string_view column) const;       // > 0
  std::int64_t count(std::string_view column) const;  // >= 1
  bool flag(std::string_view column) const;           // True/False, 1/0
  // The cell of column `gpu`; where it is blank or missing, what the file's name or the user says.
  std::string device() const;
  std::optional<DType> dtype(std::string_view column) const { return foreign_dtype(text(column)); }
  GemmLayout layout(std::string_view column) const;   // "TN", "nn"
  bool is_transposed(std::string_view column) const;  // "T", "n", "False", "1"
  // Of whole sequences to themselves: batch, heads, kv_heads, seqlen, head_dim, causal.
  AttentionSample self_attention(DType dtype) const;
  const CsvTable& table() const { return table_; }
  ReadingBuilder& builder() const { return builder_; }

  // A sample of this row; nothing when the time is not possible.
  void add(Shape shape, Seconds time, std::string implementation, SampleFlags flags = {}) const;
  void add(Shape shape, const Timing& time, std::string implementation,
           SampleFlags flags = {}) const;
  // The cell as printed.
  Printed printed(std::string_view column) const;
  // Error where the table states this number, too, and says something else. Tables that do not are
  // believed.
  void expect(std::string_view column, const Printed& expected, std::string_view why) const;
  // The same for a rate: work (FLOPs or bytes) / the time of `time_us`, in units of `unit`.
  void expect_rate(std::string_view column, double work, double unit) const;
  // And for a rate that is a share of another.
  void expect_share(std::string_view column, std::string_view share, std::string_view of) const;
  void left_out(const std::string& reason) const { builder_.left_out(reason); }

 private:
  const CsvTable& table_;
  std::size_t row_;
  ReadingBuilder& builder_;
};

// What contradicts a rate that the row states (none where it states none): work (FLOPs or bytes)
// over the time of `time_us`, in units of `unit`; "" where they agree.
std::string stated_rate_contradiction(const CsvTable& table, std::size_t row,
                                      std::string_view column, double work, double unit);
// Of these columns ("m,n,k,time_us"), those that the first line does not name.
std::vector<std::string> missing_columns(const FileHead& head, std::string_view columns);
// The table of the builder's file; with --partial lines that are no rows of it are left out.
CsvTable parse_table(ReadingBuilder& builder);
// Calls `read` for the index of each row but those that repeat an earlier one. An Error of a row is
// a fault of the file.
void read_rows(const CsvTable& table, ReadingBuilder& builder,
               const std::function<void(std::size_t)>& read);

// A whole file, row by row.
Reading read_table(const std::string& path, const ReadOptions& options,
                   void (*read)(const TableRow& row));

}  // namespace orrery::calibrate
