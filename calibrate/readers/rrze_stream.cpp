// SPDX-License-Identifier: Apache-2.0
// Streaming rates of RRZE-HPC/gpu-benches (gpu-stream): the best over all block sizes, no size
// stated. Read as 1 GiB moved at that rate; triad is three loads and one store.
#include <array>

#include "calibrate/table_reader.hpp"

namespace orrery::calibrate {
namespace {

constexpr std::int64_t kNominalBytes = std::int64_t{1} << 30;

struct Stream {
  std::string_view column;
  std::string_view operation;
  std::int64_t loads;
  std::int64_t stores;
};

constexpr std::array<Stream, 4> kStreams = {{{"init_GBps", "fill", 0, 1},
                                             {"read_GBps", "read", 1, 0},
                                             {"scale_GBps", "scale", 1, 1},
                                             {"triad_GBps", "triad", 3, 1}}};

void read_row(const TableRow& row) {
  for (const Stream& stream : kStreams) {
    const std::int64_t parts = stream.loads + stream.stores;
    const MemorySample kernel{.kernel = stream.operation == "scale"
                                            ? costmodel::MemoryKernel::Copy
                                            : costmodel::MemoryKernel::Elementwise,
                              .operation = std::string(stream.operation),
                              .bytes_read = kNominalBytes / parts * stream.loads,
                              .bytes_written = kNominalBytes / parts * stream.stores};
    const double rate = row.number(stream.column) * 1e9;
    row.add(kernel, Seconds(static_cast<double>(kernel.bytes_read + kernel.bytes_written) / rate),
            "gpu-stream, rate of 1 GiB");
  }
}

Reading read(const std::string& path, const ReadOptions& options) {
  return read_table(path, options, read_row);
}

}  // namespace

extern const SampleReader reader_rrze_stream = {
    .name = "rrze-stream",
    .what = "streaming rates (CSV)",
    .columns = "gpu,init_GBps,read_GBps,scale_GBps,triad_GBps",
    .read = read,
};

}  // namespace orrery::calibrate
