// SPDX-License-Identifier: Apache-2.0
#include "calibrate/table_reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <unordered_set>
#include <utility>

#include "base/error.hpp"
#include "base/limits.hpp"
#include "base/quantity_text.hpp"
#include "base/text.hpp"
#include "calibrate/gpu_names.hpp"
#include "calibrate/kernel_words.hpp"

namespace orrery::calibrate {
namespace {

constexpr std::int64_t kMaxCount = std::int64_t{1} << 50;
constexpr std::string_view kConfused = "columns were confused or the row was edited";

Printed printed_cell(const CsvTable& table, std::size_t row, std::string_view column) {
  const std::string& cell = table.cell(row, column);
  const double value = parse_number(cell, table.where(row, column), 0, limits::kMaxQuantity);
  return Printed::of(value, trim(cell));
}

std::string cell_contradiction(const CsvTable& table, std::size_t row, std::string_view column,
                               const Printed& expected, std::string_view why) {
  if (!table.has_column(column) || table.cell(row, column).empty() ||
      printed_cell(table, row, column).meets(expected)) {
    return "";
  }
  return fmt::format("{}, but {} {:.4g}", table.cell(row, column), why,
                     0.5 * (expected.low + expected.high));
}

// Rows equal to an earlier one in every cell, the names of the columns included: tables that were
// joined, with themselves or others. A kernel timed twice has two times, and a column of
// repetitions tells such rows apart.
class RepeatedRows {
 public:
  bool is_repeated(const CsvTable& table, std::size_t row) {
    std::string text;
    bool is_header = true;  // as where tables were joined
    for (const std::string& column : table.header()) {
      text += table.cell(row, column);
      text += '\0';
      is_header = is_header && table.cell(row, column) == column;
    }
    return is_header || !seen_.insert(std::move(text)).second;
  }

 private:
  std::unordered_set<std::string> seen_;
};

// Where the line of the text begins that the error names behind the file's name, unless it is that
// of the columns' names.
std::optional<std::size_t> line_at_fault(std::string_view text, const Error& error) {
  const std::string_view where = error.where();
  const std::string_view number = where.substr(where.find_last_of(':') + 1);
  int line = 1;
  std::from_chars(number.data(), number.data() + number.size(), line);
  std::size_t at = 0;
  for (; line > 1; --line) {
    at = text.find('\n', at);
    if (at == std::string_view::npos) {
      return std::nullopt;
    }
    ++at;
  }
  return at > 0 ? std::optional(at) : std::nullopt;
}

}  // namespace

std::string stated_rate_contradiction(const CsvTable& table, std::size_t row,
                                      std::string_view column, double work, double unit) {
  const Printed time = printed_cell(table, row, "time_us");
  if (time.low <= 0) {
    return "";
  }
  const double scaled = work * 1e6 / unit;
  return cell_contradiction(table, row, column, {scaled / time.high, scaled / time.low},
                            fmt::format("the sizes and {} us give", table.cell(row, "time_us")));
}

double TableRow::number(std::string_view column) const {
  const std::string at = where(column);
  const std::string& cell = text(column);
  if (cell.find(',') != std::string::npos) {
    bad_input(at, fmt::format("\"{}\" has a decimal comma", printable(cell)),
              "write numbers with a point");
  }
  const double value = parse_number(cell, at, -limits::kMaxQuantity, limits::kMaxQuantity);
  if (value <= 0) {
    bad_input(at, fmt::format("{} is not positive", value));
  }
  return value;
}

std::int64_t TableRow::count(std::string_view column) const {
  return parse_integer(text(column), where(column), 1, kMaxCount);
}

bool TableRow::flag(std::string_view column) const {
  const std::string value = to_lower(text(column));
  if (value == "true" || value == "1") {
    return true;
  }
  if (value != "false" && value != "0") {
    bad_input(where(column), fmt::format("\"{}\" is neither true nor false", printable(value)));
  }
  return false;
}

AttentionSample TableRow::self_attention(DType dtype) const {
  return {.batch = count("batch"),
          .heads = count("heads"),
          .kv_heads = count("kv_heads"),
          .q_len = count("seqlen"),
          .kv_len = count("seqlen"),
          .head_dim = count("head_dim"),
          .value_head_dim = count("head_dim"),
          .causal = flag("causal"),
          .dtype = dtype};
}

GemmLayout TableRow::layout(std::string_view column) const {
  const std::optional<GemmLayout> layout = gemm_layout(text(column));
  if (!layout) {
    bad_input(where(column),
              fmt::format("layout \"{}\" is none of TN, NN, NT", printable(text(column), 40)));
  }
  return *layout;
}

bool TableRow::is_transposed(std::string_view column) const {
  const std::optional<bool> transposed = calibrate::is_transposed(text(column));
  if (!transposed) {
    bad_input(where(column), fmt::format("\"{}\" is neither T nor N", printable(text(column), 40)));
  }
  return *transposed;
}

Printed TableRow::printed(std::string_view column) const {
  return printed_cell(table_, row_, column);
}

std::string TableRow::device() const {
  const bool stated = has("gpu") && !text("gpu").empty();
  return stated ? printable(text("gpu")) : builder_.device();
}

void TableRow::expect(std::string_view column, const Printed& expected,
                      std::string_view why) const {
  if (const std::string wrong = cell_contradiction(table_, row_, column, expected, why);
      !wrong.empty()) {
    bad_input(where(column), wrong, kConfused);
  }
}

void TableRow::expect_rate(std::string_view column, double work, double unit) const {
  (void)number("time_us");
  if (const std::string wrong = stated_rate_contradiction(table_, row_, column, work, unit);
      !wrong.empty()) {
    bad_input(where(column), wrong, kConfused);
  }
}

void TableRow::expect_share(std::string_view column, std::string_view share,
                            std::string_view of) const {
  if (has(share) && has(of)) {
    const Printed part = printed(share);
    const Printed whole = printed(of);
    expect(column, {part.low * whole.low, part.high * whole.high},
           fmt::format("{} x {} is", share, of));
  }
}

void TableRow::add(Shape shape, Seconds time, std::string implementation, SampleFlags flags) const {
  add(std::move(shape), single_timing(time), std::move(implementation), flags);
}

void TableRow::add(Shape shape, const Timing& time, std::string implementation,
                   SampleFlags flags) const {
  if (!check_time(builder_, where(table_.header().front()), time.median.value())) {
    return;
  }
  SampleHeader header;
  header.device = device();
  if (header.device.empty()) {
    bad_input(builder_.path(), "the table does not say which GPU it is of", "give --gpu");
  }
  header.gpu = gpu_of(header.device);
  builder_.add(header, {.shape = std::move(shape),
                        .time = time,
                        .implementation = std::move(implementation),
                        .source = builder_.source(table_.line(row_)),
                        .flags = flags});
}

std::vector<std::string> missing_columns(const FileHead& head, std::string_view columns) {
  const std::string_view text = head.text;
  const std::string_view line = text.substr(0, text.find('\n'));
  const std::vector<std::string_view> names = split(trim(line), ',');
  std::vector<std::string> missing;
  for (const std::string_view column : split(columns, ',')) {
    const bool is_here = std::any_of(names.begin(), names.end(),
                                     [&](std::string_view name) { return trim(name) == column; });
    if (!is_here && !column.empty()) {
      missing.emplace_back(column);
    }
  }
  return missing;
}

CsvTable parse_table(ReadingBuilder& builder) {
  constexpr int kMostLines = 100;  // a file with more that are broken is not this table
  std::string text = builder.text();
  for (int broken = 0;; ++broken) {
    try {
      return parse_csv(text, builder.path());
    } catch (const Error& error) {
      const std::optional<std::size_t> at = line_at_fault(text, error);
      if (!builder.options().partial || !at || broken >= kMostLines) {
        throw;
      }
      builder.part([&error] { throw error; });
      text.erase(*at, text.find('\n', *at) - *at);  // a blank line, so that later ones keep theirs
    }
  }
}

void read_rows(const CsvTable& table, ReadingBuilder& builder,
               const std::function<void(std::size_t)>& read) {
  RepeatedRows rows;
  for (std::size_t row = 0; row < table.num_rows(); ++row) {
    if (rows.is_repeated(table, row)) {
      builder.left_out("row that repeats an earlier one");
    } else {
      builder.part([&] { read(row); });
    }
  }
}

Reading read_table(const std::string& path, const ReadOptions& options,
                   void (*read)(const TableRow& row)) {
  ReadingBuilder builder(path, options);
  const CsvTable table = parse_table(builder);
  read_rows(table, builder, [&](std::size_t row) { read(TableRow(table, row, builder)); });
  return builder.finish();
}

}  // namespace orrery::calibrate
