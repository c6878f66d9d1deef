// SPDX-License-Identifier: Apache-2.0
#include "studies/validation/kernel_rates.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "base/limits.hpp"
#include "calibrate/shapes.hpp"
#include "calibrate/table_reader.hpp"

namespace orrery::studies {
namespace {

bool has_columns(const Cells& cells, std::initializer_list<std::string_view> columns) {
  return std::all_of(columns.begin(), columns.end(),
                     [&](std::string_view column) { return cells.has(column); });
}

double gemm_work(const Cells& cells) {
  const calibrate::GemmSample gemm{.m = cells.required_count("m", limits::kMaxVocab),
                                   .n = cells.required_count("n", limits::kMaxVocab),
                                   .k = cells.required_count("k", limits::kMaxVocab)};
  return calibrate::gemm_flops(gemm);
}

double attention_work(const Cells& cells) {
  const std::int64_t tokens = cells.required_count("seqlen", limits::kMaxSequence);
  const std::int64_t width = cells.required_count("head_dim", limits::kMaxHidden);
  const calibrate::AttentionSample attention{
      .batch = cells.required_count("batch", limits::kMaxBatch),
      .heads = cells.required_count("heads", limits::kMaxHeads),
      .kv_heads = cells.required_count("kv_heads", limits::kMaxHeads),
      .q_len = tokens,
      .kv_len = tokens,
      .head_dim = width,
      .value_head_dim = width,
      .causal = cells.flag("causal").value_or(true)};
  return calibrate::attention_flops(attention);
}

struct StatedRate {
  std::string_view column;
  double work = 0;  // FLOPs or bytes
  double unit = 0;
};

// Of the tables that state rates beside times (kernel_tables.cpp).
std::optional<StatedRate> stated_rate(const Cells& cells) {
  if (!cells.has("time_us") || cells.is_open("time_us")) {
    return std::nullopt;
  }
  if (has_columns(cells, {"dtype", "m", "n", "k", "tflops"})) {
    return StatedRate{"tflops", gemm_work(cells), 1e12};
  }
  if (has_columns(cells, {"batch", "heads", "kv_heads", "seqlen", "head_dim", "tflops"})) {
    return StatedRate{"tflops", attention_work(cells), 1e12};
  }
  const double bytes = has_columns(cells, {"op", "m", "k", "GBps"})
                           ? calibrate::rated_cast_bytes(cells.text("op"))
                           : 0.0;
  return bytes > 0 ? std::optional(StatedRate{
                         "GBps",
                         bytes * static_cast<double>(cells.required_count("m", limits::kMaxVocab)) *
                             static_cast<double>(cells.required_count("k", limits::kMaxVocab)),
                         1e9})
                   : std::nullopt;
}

}  // namespace

std::string contradicted_time(const Cells& cells) {
  const auto rate = stated_rate(cells);
  if (!rate || cells.is_open(rate->column)) {
    return "";
  }
  const std::string wrong = calibrate::stated_rate_contradiction(
      cells.table(), cells.row(), rate->column, rate->work, rate->unit);
  return wrong.empty()
             ? ""
             : fmt::format("{}: {}", cells.table().where(cells.row(), rate->column), wrong);
}

}  // namespace orrery::studies
