// SPDX-License-Identifier: Apache-2.0
// Grouped GEMM tables of MooreThreads/SimuMax: ng experts of M tokens, weights of K x N;
// efficiency for 2 ng M N K FLOPs in all three stages (simu_tools/efficency_test/
// test_grouped_gemm_efficiency.py).
#include "calibrate/shapes.hpp"
#include "calibrate/table_reader.hpp"

namespace orrery::calibrate {
namespace {

void read_row(const TableRow& row) {
  const std::optional<DType> dtype = row.dtype("dtype");
  const std::optional<DType> output = row.dtype("out_dtype");
  const std::optional<DType> gradient = row.dtype("main_grad_dtype");
  const std::string& stage = row.text("stage");
  if (!dtype || !output || !gradient) {
    row.left_out("GEMM of a number format that is not modelled");
    return;
  }
  const std::int64_t tokens = row.count("M");
  const std::int64_t out = row.count("N");
  const std::int64_t in = row.count("K");
  GemmSample gemm{.m = tokens,
                  .n = out,
                  .k = in,
                  .groups = row.count("ng"),
                  .dtype = *dtype,
                  .output = *output};
  if (stage == "bwd_grad_act") {
    gemm.n = in;
    gemm.k = out;
    gemm.layout = GemmLayout::NN;
  } else if (stage == "bwd_grad_w") {
    gemm.m = out;
    gemm.n = in;
    gemm.k = tokens;
    gemm.layout = GemmLayout::NT;
    gemm.output = *gradient;
    gemm.accumulate = row.flag("accumulate");
  } else if (stage != "fwd") {
    row.left_out("stage \"" + stage + "\"");
    return;
  }
  const double rate = row.number("efficiency") * row.number("peak_tflops") * 1e12;
  row.add(gemm, Seconds(gemm_flops(gemm) / rate), "simumax");
}

Reading read(const std::string& path, const ReadOptions& options) {
  return read_table(path, options, read_row);
}

}  // namespace

extern const SampleReader reader_simumax_grouped = {
    .name = "simumax-grouped",
    .what = "grouped GEMM efficiencies (CSV)",
    .columns = "ng,M,N,K,stage,efficiency,peak_tflops",
    .read = read,
};

}  // namespace orrery::calibrate
