// SPDX-License-Identifier: Apache-2.0
// Attention tables of MooreThreads/SimuMax, causal. The efficiencies count the FLOPs of full
// attention: 2 B S^2 H (d_qk + d_v) forward and 2.5 times as many backward
// (simu_tools/efficency_test/test_fa_efficiency.py).
#include "calibrate/table_reader.hpp"

namespace orrery::calibrate {
namespace {

void read_row(const TableRow& row) {
  const std::string& operation = row.text("op");
  if (operation != "sdp_fwd" && operation != "sdp_bwd") {
    row.left_out("operation \"" + operation + "\"");
    return;
  }
  const AttentionSample attention{.batch = row.count("batch"),
                                  .heads = row.count("head_num"),
                                  .kv_heads = row.count("kv_head_num"),
                                  .q_len = row.count("seq_len"),
                                  .kv_len = row.count("seq_len"),
                                  .head_dim = row.count("qk_head_dim"),
                                  .value_head_dim = row.count("v_head_dim"),
                                  .backward = operation == "sdp_bwd"};
  const double length = static_cast<double>(attention.q_len);
  const double base = static_cast<double>(attention.batch) * length * length *
                      static_cast<double>(attention.heads) *
                      static_cast<double>(attention.head_dim + attention.value_head_dim);
  row.expect_share("tflops", "efficiency", "peak_tflops");
  const double rate = row.number("efficiency") * row.number("peak_tflops") * 1e12;
  row.add(attention, Seconds((attention.backward ? 5.0 : 2.0) * base / rate), "simumax");
}

Reading read(const std::string& path, const ReadOptions& options) {
  return read_table(path, options, read_row);
}

}  // namespace

extern const SampleReader reader_simumax_attention = {
    .name = "simumax-attention",
    .what = "attention efficiencies (CSV)",
    .columns = "batch,seq_len,head_num,kv_head_num,qk_head_dim,v_head_dim,efficiency,peak_tflops",
    .read = read,
};

}  // namespace orrery::calibrate
