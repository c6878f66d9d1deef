// SPDX-License-Identifier: Apache-2.0
// GEMM tables of MooreThreads/SimuMax: efficiency is a share of the stated peak, for 2 b m n k
// FLOPs. Layout TN is the forward pass, NN the input and NT the weight gradient; m, n and k are
// those of the multiplication itself.
#include "calibrate/kernel_words.hpp"
#include "calibrate/shapes.hpp"
#include "calibrate/table_reader.hpp"

namespace orrery::calibrate {
namespace {

void read_row(const TableRow& row) {
  const std::optional<DType> dtype =
      row.has("op") ? operands_of_product(row.text("op")) : DType::Bf16;
  const std::optional<DType> output = row.dtype("out_dtype");
  if (!dtype || !output) {
    row.left_out("GEMM of a number format that is not modelled");
    return;
  }
  const std::int64_t batch = row.count("b");
  if (batch != 1) {
    row.left_out("batched GEMM");
    return;
  }
  const GemmSample gemm{.m = row.count("m"),
                        .n = row.count("n"),
                        .k = row.count("k"),
                        .dtype = *dtype,
                        .layout = row.layout("layout"),
                        .output = *output,
                        .accumulate = row.flag("accumulate")};
  row.expect_share("tflops", "efficiency", "peak_tflops");
  const double rate = row.number("efficiency") * row.number("peak_tflops") * 1e12;
  row.add(gemm, Seconds(gemm_flops(gemm) / rate), "simumax");
}

Reading read(const std::string& path, const ReadOptions& options) {
  return read_table(path, options, read_row);
}

}  // namespace

extern const SampleReader reader_simumax_gemm = {
    .name = "simumax-gemm",
    .what = "GEMM efficiencies (CSV)",
    .columns = "b,m,n,k,layout,accumulate,efficiency,peak_tflops",
    .read = read,
};

}  // namespace orrery::calibrate
