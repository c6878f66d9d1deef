// SPDX-License-Identifier: Apache-2.0
// Rates of the figures of Dao-AILab/flash-attention: 4 S^2 D H FLOPs a sequence, half of it when
// causal, 3.5 times as many for both passes.
#include <fmt/format.h>

#include "calibrate/kernel_words.hpp"
#include "calibrate/shapes.hpp"
#include "calibrate/table_reader.hpp"

namespace orrery::calibrate {
namespace {

bool recognises(const FileHead& head) { return !missing_columns(head, "time_us").empty(); }

// One name for all spellings of a version, by which the fit knows it.
std::string named_kernel(const std::string& impl) {
  const std::optional<int> version = flash_version(impl);
  return version ? fmt::format("FlashAttention-{}", *version) : impl;
}

void read_row(const TableRow& row) {
  const std::optional<DType> dtype = row.dtype("dtype");
  const std::optional<AttentionPasses> passes = attention_passes(row.text("pass_"));
  if (!passes || !passes->forward || !dtype) {
    row.left_out(dtype ? "attention's pass " + row.text("pass_")
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
                                  .dtype = *dtype,
                                  .both_passes = passes->backward};
  row.add(attention, Seconds(attention_flops(attention) / (row.number("tflops") * 1e12)),
          named_kernel(row.text("impl")));
}

Reading read(const std::string& path, const ReadOptions& options) {
  return read_table(path, options, read_row);
}

}  // namespace

extern const SampleReader reader_flash_attention = {
    .name = "flash-attention",
    .what = "attention rates (CSV)",
    .columns = "gpu,impl,pass_,batch,heads,seqlen,head_dim,causal,tflops",
    .recognises = recognises,
    .read = read,
};

}  // namespace orrery::calibrate
