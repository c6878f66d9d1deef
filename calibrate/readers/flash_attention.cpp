// SPDX-License-Identifier: Apache-2.0
// Rates of the figures of Dao-AILab/flash-attention: 4 S^2 D H FLOPs a sequence, half of it when
// causal. Bars of forward and backward together cannot be told apart and are left out.
#include "calibrate/table_reader.hpp"

namespace orrery::calibrate {
namespace {

bool recognises(const FileHead& head) {
  return has_columns(head, {"gpu", "impl", "pass_", "batch", "heads", "seqlen", "head_dim",
                            "causal", "tflops"}) &&
         !has_columns(head, {"time_us"});
}

void read_row(const TableRow& row) {
  const std::optional<DType> dtype = row.dtype("dtype");
  if (row.text("pass_") != "fwd" || !dtype) {
    row.left_out(dtype ? "time of " + row.text("pass_") + " together"
                       : "attention of a number format that is not modelled");
    return;
  }
  const AttentionSample attention{.batch = row.count("batch"),
                                  .heads = row.count("heads"),
                                  .kv_heads = row.count("heads"),
                                  .q_len = row.count("seqlen"),
                                  .kv_len = row.count("seqlen"),
                                  .head_dim = row.count("head_dim"),
                                  .value_head_dim = row.count("head_dim"),
                                  .causal = row.flag("causal"),
                                  .dtype = *dtype};
  const double length = static_cast<double>(attention.q_len);
  const double flops = (attention.causal ? 2.0 : 4.0) * length * length *
                       static_cast<double>(attention.head_dim * attention.heads) *
                       static_cast<double>(attention.batch);
  row.add(attention, Seconds(flops / (row.number("tflops") * 1e12)), row.text("impl"));
}

Reading read(const std::string& path, const ReadOptions& options) {
  return read_table(path, options, read_row);
}

}  // namespace

extern const SampleReader reader_flash_attention = {
    "flash-attention", "attention rates: gpu,impl,pass_,batch,heads,seqlen,head_dim,tflops (CSV)",
    recognises, read};

}  // namespace orrery::calibrate
