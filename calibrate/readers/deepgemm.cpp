// SPDX-License-Identifier: Apache-2.0
// Rates of deepseek-ai/DeepGEMM: block-scaled fp8 with bf16 output; m is that of each group.
#include "calibrate/shapes.hpp"
#include "calibrate/table_reader.hpp"

namespace orrery::calibrate {
namespace {

void read_row(const TableRow& row) {
  const GemmSample gemm{.m = row.count("m"),
                        .n = row.count("n"),
                        .k = row.count("k"),
                        .groups = row.count("groups"),
                        .dtype = DType::Fp8};
  row.add(gemm, Seconds(gemm_flops(gemm) / (row.number("tflops") * 1e12)), "deepgemm");
}

Reading read(const std::string& path, const ReadOptions& options) {
  return read_table(path, options, read_row);
}

}  // namespace

extern const SampleReader reader_deepgemm = {
    .name = "deepgemm",
    .what = "fp8 GEMM rates (CSV)",
    .columns = "gpu,kind,groups,m,n,k,tflops",
    .read = read,
};

}  // namespace orrery::calibrate
