// SPDX-License-Identifier: Apache-2.0
// Grouped GEMM tables of MooreThreads/SimuMax: ng experts of M tokens, weights of K x N;
// efficiency for 2 ng M N K FLOPs in all three stages (simu_tools/efficency_test/
// test_grouped_gemm_efficiency.py).
#include "calibrate/kernel_words.hpp"
#include "calibrate/shapes.hpp"
#include "calibrate/table_reader.hpp"

namespace orrery::calibrate {
namespace {

void read_row(const TableRow& row) {
  const std::optional<DType> dtype = row.dtype("dtype");
  const std::optional<DType> output = row.dtype("out_dtype");
  const std::optional<DType> gradient = row.dtype("main_grad_dtype");
  const std::optional<GemmLayout> layout = layout_of_pass(row.text("stage"));
  if (!dtype || !output || !gradient) {
    row.left_out("GEMM of a number format that is not modelled");
    return;
  }
  if (!layout) {
    row.left_out("stage \"" + row.text("stage") + "\"");
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
                  .layout = *layout,
                  .output = *output};
  if (layout == GemmLayout::NN) {
    gemm.n = in;
    gemm.k = out;
  } else if (layout == GemmLayout::NT) {
    gemm.m = out;
    gemm.n = in;
    gemm.k = tokens;
    gemm.output = *gradient;
    gemm.accumulate = row.flag("accumulate");
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
