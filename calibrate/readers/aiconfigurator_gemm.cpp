// SPDX-License-Identifier: Apache-2.0
// GEMM tables of ai-dynamo/aiconfigurator: x[m,k] W[n,k]^T replayed from a CUDA graph, weights
// rotated so that they do not stay in the L2 cache. Other tables of these columns may have one of
// layouts beside them.
#include "calibrate/shapes.hpp"
#include "calibrate/table_reader.hpp"

namespace orrery::calibrate {
namespace {

bool recognises(const FileHead& head) { return !missing_columns(head, "trans_a").empty(); }

void read_row(const TableRow& row) {
  const std::optional<DType> dtype = row.dtype("dtype");
  if (!dtype) {
    row.left_out("GEMM of a number format that is not modelled");
    return;
  }
  GemmSample gemm{.m = row.count("m"), .n = row.count("n"), .k = row.count("k"), .dtype = *dtype};
  gemm.output = unquantised(*dtype);
  if (row.has("layout") && !row.text("layout").empty()) {
    gemm.layout = row.layout("layout");
  }
  row.expect_rate("tflops", gemm_flops(gemm), 1e12);
  row.add(gemm, Seconds(row.number("time_us") * 1e-6), "aiconfigurator", {.graph = true});
}

Reading read(const std::string& path, const ReadOptions& options) {
  return read_table(path, options, read_row);
}

}  // namespace

extern const SampleReader reader_aiconfigurator_gemm = {
    .name = "aiconfigurator-gemm",
    .what = "GEMM times (CSV)",
    .columns = "gpu,dtype,m,n,k,time_us",
    .recognises = recognises,
    .read = read,
};

}  // namespace orrery::calibrate
