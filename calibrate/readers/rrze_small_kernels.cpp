// SPDX-License-Identifier: Apache-2.0
// Back-to-back small kernels of RRZE-HPC/gpu-benches (gpu-small-kernels): a scale of doubles, 8
// bytes read and 8 written an element; the time of one of 10,000 queued calls.
#include "calibrate/table_reader.hpp"

namespace orrery::calibrate {
namespace {

void read_row(const TableRow& row) {
  const std::string& mode = row.text("mode");
  if (mode != "cuda_graph" && mode != "stream_launch") {
    row.left_out("kernel that stays on the GPU (" + mode + ")");
    return;
  }
  const std::int64_t bytes = 8 * row.count("elements");
  const MemorySample kernel{.kernel = costmodel::MemoryKernel::Copy,
                            .operation = "scale",
                            .bytes_read = bytes,
                            .bytes_written = bytes,
                            .dtype = DType::Fp32};
  row.add(kernel, single_timing(Seconds(row.number("time_us") * 1e-6), 10'000), "gpu-small-kernels",
          {.graph = mode == "cuda_graph"});
}

Reading read(const std::string& path, const ReadOptions& options) {
  return read_table(path, options, read_row);
}

}  // namespace

extern const SampleReader reader_rrze_small_kernels = {
    .name = "rrze-small-kernels",
    .what = "small kernels (CSV)",
    .columns = "gpu,mode,elements,time_us",
    .read = read,
};

}  // namespace orrery::calibrate
