// SPDX-License-Identifier: Apache-2.0
// Optimizer steps of SamsungLabs/Metis profiles: Adam on fp16 parameters with fp32 copies, divided
// over tp ranks. A parameter costs 16 bytes read (gradient, master copy, two moments in fp32) and
// 14 written (master copy, moments, fp16 copy).
#include "calibrate/table_reader.hpp"

namespace orrery::calibrate {
namespace {

void read_row(const TableRow& row) {
  const std::int64_t parameters = row.count("param_bytes_total") / 2 / row.count("tp");
  const MemorySample kernel{.kernel = costmodel::MemoryKernel::Optimizer,
                            .operation = "adam",
                            .bytes_read = 16 * parameters,
                            .bytes_written = 14 * parameters,
                            .dtype = DType::Fp32};
  row.add(kernel, Seconds(row.number("optimizer_ms") * 1e-3), "metis");
}

Reading read(const std::string& path, const ReadOptions& options) {
  return read_table(path, options, read_row);
}

}  // namespace

extern const SampleReader reader_metis_optimizer = {
    .name = "metis-optimizer",
    .what = "optimizer steps (CSV)",
    .columns = "gpu,tp,param_bytes_total,optimizer_ms",
    .read = read,
};

}  // namespace orrery::calibrate
