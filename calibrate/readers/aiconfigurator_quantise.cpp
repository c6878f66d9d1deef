// SPDX-License-Identifier: Apache-2.0
// Quantisation tables of ai-dynamo/aiconfigurator on m x k elements of bf16: the scaled cast to fp8
// reads 2 and writes 1 byte an element. "amax_scale" finds the largest magnitude first, which reads
// 2 bytes more: at large sizes its times are five thirds of those of the cast, not two thirds.
#include "calibrate/shapes.hpp"
#include "calibrate/table_reader.hpp"

namespace orrery::calibrate {
namespace {

void read_row(const TableRow& row) {
  MemorySample kernel{
      .kernel = costmodel::MemoryKernel::Cast, .rows = row.count("m"), .columns = row.count("k")};
  const std::int64_t elements = kernel.rows * kernel.columns;
  const std::string& operation = row.text("op");
  kernel.bytes_written = elements;
  if (operation == "bf16_to_fp8_scale") {
    kernel.operation = "cast-fp8";
    kernel.bytes_read = 2 * elements;
  } else if (operation == "amax_scale") {
    kernel.operation = "amax-cast-fp8";
    kernel.bytes_read = 4 * elements;
  } else {
    row.left_out("quantisation \"" + operation + "\"");
    return;
  }
  row.expect_rate("GBps", rated_cast_bytes(operation) * static_cast<double>(elements), 1e9);
  row.add(kernel, Seconds(row.number("time_us") * 1e-6), "aiconfigurator", {.graph = true});
}

Reading read(const std::string& path, const ReadOptions& options) {
  return read_table(path, options, read_row);
}

}  // namespace

extern const SampleReader reader_aiconfigurator_quantise = {
    .name = "aiconfigurator-quantise",
    .what = "quantisation times (CSV)",
    .columns = "gpu,op,m,k,time_us,GBps",
    .read = read,
};

}  // namespace orrery::calibrate
