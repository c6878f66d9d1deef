// SPDX-License-Identifier: Apache-2.0
// Best matrix rates of stas00/ml-engineering: one shape a GPU, found by search.
#include "calibrate/shapes.hpp"
#include "calibrate/table_reader.hpp"

namespace orrery::calibrate {
namespace {

void read_row(const TableRow& row) {
  const std::optional<DType> dtype = row.dtype("dtype");
  if (!dtype) {
    row.left_out("GEMM of a number format that is not modelled");
    return;
  }
  const GemmSample gemm{
      .m = row.count("m"), .n = row.count("n"), .k = row.count("k"), .dtype = *dtype};
  row.expect_share("tflops", "efficiency", "theory_tflops");
  row.add(gemm, Seconds(gemm_flops(gemm) / (row.number("tflops") * 1e12)), "best of many shapes");
}

Reading read(const std::string& path, const ReadOptions& options) {
  return read_table(path, options, read_row);
}

}  // namespace

extern const SampleReader reader_mamf = {
    .name = "mamf",
    .what = "best matrix rates (CSV)",
    .columns = "gpu,dtype,tflops,theory_tflops,m,n,k",
    .read = read,
};

}  // namespace orrery::calibrate
