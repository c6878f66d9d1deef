// SPDX-License-Identifier: Apache-2.0
// Attention tables of ai-dynamo/aiconfigurator: prefill forward, grouped-query heads.
#include "calibrate/shapes.hpp"
#include "calibrate/table_reader.hpp"

namespace orrery::calibrate {
namespace {

void read_row(const TableRow& row) {
  const std::optional<DType> dtype = row.dtype("dtype");
  if (!dtype) {
    row.left_out("attention of a number format that is not modelled");
    return;
  }
  const AttentionSample attention = row.self_attention(*dtype);
  row.expect_rate("tflops", attention_flops(attention), 1e12);
  row.add(attention, Seconds(row.number("time_us") * 1e-6), row.text("impl"));
}

Reading read(const std::string& path, const ReadOptions& options) {
  return read_table(path, options, read_row);
}

}  // namespace

extern const SampleReader reader_aiconfigurator_attention = {
    .name = "aiconfigurator-attention",
    .what = "attention times (CSV)",
    .columns = "batch,heads,kv_heads,seqlen,head_dim,time_us",
    .read = read,
};

}  // namespace orrery::calibrate
