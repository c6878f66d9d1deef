// SPDX-License-Identifier: Apache-2.0
// HBM streaming of microsoft/superbenchmark (gpu_stream): arrays of `bytes`, rate over all arrays.
#include "calibrate/table_reader.hpp"

namespace orrery::calibrate {
namespace {

void read_row(const TableRow& row) {
  const std::string& operation = row.text("op");
  const bool two = operation == "COPY" || operation == "SCALE";
  if (!two && operation != "ADD" && operation != "TRIAD") {
    row.left_out("operation \"" + operation + "\"");
    return;
  }
  const std::int64_t bytes = row.count("bytes");
  const MemorySample kernel{
      .kernel = two ? costmodel::MemoryKernel::Copy : costmodel::MemoryKernel::Elementwise,
      .operation = two ? "copy" : "add",
      .bytes_read = two ? bytes : 2 * bytes,
      .bytes_written = bytes};
  row.add(kernel,
          Seconds(static_cast<double>(kernel.bytes_read + kernel.bytes_written) /
                  (row.number("GBps") * 1e9)),
          "gpu_stream, block " + row.text("block"));
}

Reading read(const std::string& path, const ReadOptions& options) {
  return read_table(path, options, read_row);
}

}  // namespace

extern const SampleReader reader_superbench_stream = {
    .name = "superbench-stream",
    .what = "HBM streaming (CSV)",
    .columns = "gpu,op,bytes,block,GBps",
    .read = read,
};

}  // namespace orrery::calibrate
