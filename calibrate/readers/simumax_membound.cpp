// SPDX-License-Identifier: Apache-2.0
// Memory-bound rates of MooreThreads/SimuMax: a share of the stated HBM bandwidth and a fixed
// latency for each class of kernel, with no size. They are read as a kernel that moves 1 GiB at
// that rate, half read and half written, which the latency then hardly changes.
#include "calibrate/table_reader.hpp"

namespace orrery::calibrate {
namespace {

constexpr std::int64_t kNominalBytes = std::int64_t{1} << 30;

void read_row(const TableRow& row) {
  using costmodel::MemoryKernel;
  const std::string& operation = row.text("op");
  MemorySample kernel{.kernel = MemoryKernel::Elementwise,
                      .operation = operation,
                      .bytes_read = kNominalBytes / 2,
                      .bytes_written = kNominalBytes / 2};
  if (operation.starts_with("permute")) {
    kernel.kernel = MemoryKernel::Permute;
    kernel.backward = operation.ends_with("bwd");
  } else if (operation.starts_with("ce")) {
    kernel.kernel = MemoryKernel::CrossEntropy;
  } else if (operation != "default") {
    row.left_out("operation \"" + operation + "\"");
    return;
  }
  const double rate = row.number("efficient_factor") * row.number("gbps") * 1e9;
  row.add(kernel,
          Seconds(static_cast<double>(kNominalBytes) / rate + row.number("latency_us") * 1e-6),
          "simumax, rate of 1 GiB");
}

Reading read(const std::string& path, const ReadOptions& options) {
  return read_table(path, options, read_row);
}

}  // namespace

extern const SampleReader reader_simumax_membound = {
    .name = "simumax-membound",
    .what = "memory-bound rates (CSV)",
    .columns = "gpu,op,efficient_factor,gbps,latency_us",
    .read = read,
};

}  // namespace orrery::calibrate
