// SPDX-License-Identifier: Apache-2.0
// The same GEMMs under several software stacks: m,n,k and one column NAME_us a stack. The table
// does not name its GPU; the user does.
#include "calibrate/table_reader.hpp"

namespace orrery::calibrate {
namespace {

constexpr std::string_view kEnding = "_us";

bool recognises(const FileHead& head) {
  const std::string_view text = head.text;
  const std::string_view line = text.substr(0, text.find('\n'));
  return line.starts_with("m,n,k,") && line.find(kEnding) != std::string_view::npos;
}

void read_row(const TableRow& row) {
  const GemmSample gemm{.m = row.count("m"), .n = row.count("n"), .k = row.count("k")};
  for (const std::string& column : row.table().header()) {
    if (column.ends_with(kEnding)) {
      row.add(gemm, Seconds(row.number(column) * 1e-6),
              column.substr(0, column.size() - kEnding.size()), {.graph = true});
    }
  }
}

Reading read(const std::string& path, const ReadOptions& options) {
  return read_table(path, options, read_row);
}

}  // namespace

extern const SampleReader reader_gemm_repeat = {
    .name = "gemm-repeat",
    .what = "GEMM times of several libraries: m,n,k,NAME_us (CSV)",
    .recognises = recognises,
    .read = read,
};

}  // namespace orrery::calibrate
