// SPDX-License-Identifier: Apache-2.0
// Read bandwidth against the working set, of RRZE-HPC/gpu-benches (gpu-l2-cache): data that fits
// into the L2 cache is read from there.
#include "calibrate/table_reader.hpp"

namespace orrery::calibrate {
namespace {

void read_row(const TableRow& row) {
  const MemorySample kernel{.kernel = costmodel::MemoryKernel::Elementwise,
                            .operation = "read",
                            .bytes_read = row.count("data_kB") * 1000};
  row.add(kernel, Seconds(static_cast<double>(kernel.bytes_read) / (row.number("GBps") * 1e9)),
          "gpu-l2-cache");
}

Reading read(const std::string& path, const ReadOptions& options) {
  return read_table(path, options, read_row);
}

}  // namespace

extern const SampleReader reader_rrze_l2 = {
    .name = "rrze-l2",
    .what = "bandwidth against working set (CSV)",
    .columns = "gpu,data_kB,GBps",
    .read = read,
};

}  // namespace orrery::calibrate
