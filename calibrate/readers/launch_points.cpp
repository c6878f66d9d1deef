// SPDX-License-Identifier: Apache-2.0
// Launch latencies of one empty kernel: source,what,values with one value (us) for each GPU, by GPU
// event or by the wall clock. The table does not name its GPU; the user does.
#include "base/limits.hpp"
#include "base/quantity_text.hpp"
#include "base/text.hpp"
#include "calibrate/table_reader.hpp"

namespace orrery::calibrate {
namespace {

void read_row(const TableRow& row) {
  const std::string& what = row.text("what");
  if (what.find("launch latency") == std::string::npos) {
    row.left_out("\"" + what + "\"");
    return;
  }
  std::vector<double> seconds;
  for (const std::string_view value : split(row.text("values"), ';')) {
    seconds.push_back(1e-6 *
                      parse_number(trim(value), row.where("values"), 1e-3, limits::kMaxQuantity));
  }
  const bool event = what.find("event") != std::string::npos;
  row.add(LaunchSample{}, timing_of(std::move(seconds)), event ? "gpu event" : "wall clock");
}

Reading read(const std::string& path, const ReadOptions& options) {
  return read_table(path, options, read_row);
}

}  // namespace

extern const SampleReader reader_launch_points = {
    .name = "launch-points",
    .what = "launch latencies (CSV)",
    .columns = "source,what,values",
    .read = read,
};

}  // namespace orrery::calibrate
