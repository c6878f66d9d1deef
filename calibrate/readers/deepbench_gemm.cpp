// SPDX-License-Identifier: Apache-2.0
// GEMM tables of baidu-research/DeepBench: cuBLAS, column-major M, N, K and transpositions; times
// include the launch. C[M,N] column-major is C^T[N,M] row-major, so m = N and n = M.
#include "calibrate/kernel_words.hpp"
#include "calibrate/shapes.hpp"
#include "calibrate/table_reader.hpp"

namespace orrery::calibrate {
namespace {

std::optional<DType> dtype_of(const std::string& text) {
  if (text == "fp16_mixed_tensorcore") {
    return DType::Fp16;
  }
  return foreign_dtype(text);
}

void read_row(const TableRow& row) {
  const std::optional<DType> dtype = dtype_of(row.text("dtype"));
  const std::optional<GemmLayout> layout =
      layout_of_transposes(row.is_transposed("trans_a"), row.is_transposed("trans_b"));
  if (!dtype || !layout) {
    row.left_out(dtype ? "GEMM with both operands transposed" : "GEMM outside the tensor cores");
    return;
  }
  const GemmSample gemm{.m = row.count("n"),
                        .n = row.count("m"),
                        .k = row.count("k"),
                        .dtype = *dtype,
                        .layout = *layout,
                        .output = *dtype};
  row.expect_rate("tflops", gemm_flops(gemm), 1e12);
  row.add(gemm, Seconds(row.number("time_us") * 1e-6), "cublas");
}

Reading read(const std::string& path, const ReadOptions& options) {
  return read_table(path, options, read_row);
}

}  // namespace

extern const SampleReader reader_deepbench_gemm = {
    .name = "deepbench-gemm",
    .what = "GEMM times (CSV)",
    .columns = "gpu,dtype,m,n,k,trans_a,trans_b,time_us",
    .read = read,
};

}  // namespace orrery::calibrate
