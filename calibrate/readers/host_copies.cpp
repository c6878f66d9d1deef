// SPDX-License-Identifier: Apache-2.0
// Copies between host and device: bandwidth against size; the column `link` says whether the host
// memory is pinned.
#include "calibrate/table_reader.hpp"

namespace orrery::calibrate {
namespace {

void read_row(const TableRow& row) {
  const std::string& direction = row.text("direction");
  if (direction != "h2d" && direction != "d2h") {
    row.left_out("copy \"" + direction + "\"");
    return;
  }
  const HostCopySample copy{
      .bytes = row.count("bytes"),
      .direction = direction == "h2d" ? CopyDirection::HostToDevice : CopyDirection::DeviceToHost,
      .pinned = row.text("link").find("pinned") != std::string::npos};
  row.add(copy, Seconds(static_cast<double>(copy.bytes) / (row.number("GBps") * 1e9)),
          row.text("link"));
}

Reading read(const std::string& path, const ReadOptions& options) {
  return read_table(path, options, read_row);
}

}  // namespace

extern const SampleReader reader_host_copies = {
    .name = "host-copies",
    .what = "copies (CSV)",
    .columns = "gpu,link,direction,bytes,GBps",
    .read = read,
};

}  // namespace orrery::calibrate
