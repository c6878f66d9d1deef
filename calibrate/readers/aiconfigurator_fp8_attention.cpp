// SPDX-License-Identifier: Apache-2.0
// Prefill attention of ai-dynamo/aiconfigurator in fp8 beside the same calls in 16 bits.
#include "calibrate/table_reader.hpp"

namespace orrery::calibrate {
namespace {

void read_row(const TableRow& row) {
  AttentionSample attention = row.self_attention(DType::Fp8);
  attention.in_16_bits_s = row.number("bf16_us") * 1e-6;
  row.add(attention, Seconds(row.number("fp8_us") * 1e-6), row.text("impl"));
}

Reading read(const std::string& path, const ReadOptions& options) {
  return read_table(path, options, read_row);
}

}  // namespace

extern const SampleReader reader_aiconfigurator_fp8_attention = {
    .name = "aiconfigurator-fp8-attention",
    .what = "attention times in fp8 beside those in 16 bits (CSV)",
    .columns = "batch,heads,kv_heads,seqlen,head_dim,bf16_us,fp8_us",
    .read = read,
};

}  // namespace orrery::calibrate
