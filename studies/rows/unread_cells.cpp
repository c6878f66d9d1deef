// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/unread_cells.hpp"

#include <fmt/format.h>

#include <array>
#include <iterator>
#include <string_view>

#include "base/text.hpp"
#include "base/words.hpp"
#include "studies/rows/bridge_recipes.hpp"
#include "studies/rows/counting_words.hpp"
#include "studies/rows/other_training.hpp"
#include "studies/rows/routed_load.hpp"
#include "studies/rows/row_cluster.hpp"
#include "studies/rows/row_plan.hpp"
#include "studies/rows/row_recompute.hpp"
#include "studies/rows/row_words.hpp"
#include "studies/rows/settings.hpp"
#include "studies/rows/stated_attention.hpp"
#include "studies/rows/stated_experts.hpp"
#include "studies/rows/stated_groups.hpp"
#include "studies/rows/stated_offload.hpp"
#include "studies/rows/stated_overlap.hpp"
#include "studies/rows/stated_scaling.hpp"
#include "studies/rows/stated_stages.hpp"
#include "studies/rows/stated_window.hpp"

namespace orrery::studies {
namespace {

using Lines = std::vector<std::string>;

void add(Lines& lines, Lines more) {
  lines.insert(lines.end(), std::make_move_iterator(more.begin()),
               std::make_move_iterator(more.end()));
}

void unread_heads(const Measurement& row, Lines& lines) {
  const std::int64_t heads = row.heads.value_or(0);
  if (!row.head_dim && row.hidden && heads > 0 && *row.hidden % heads != 0) {
    lines.push_back(fmt::format("head_dim {}: hidden {} is not divisible by {} heads",
                                *row.hidden / heads, *row.hidden, heads));
  }
}

// Kernels are fused unless words for others say so (row_execution.cpp).
void unread_attention(const Measurement& row, Lines& lines) {
  constexpr auto kKernels = std::to_array<std::string_view>({"flash",
                                                             "fused",
                                                             "softmax",
                                                             "eager",
                                                             "naive",
                                                             "sdpa",
                                                             "scaled_dot",
                                                             "efficient",
                                                             "cudnn",
                                                             "transformer engine",
                                                             "transformerengine",
                                                             "torch",
                                                             "local",
                                                             "standard",
                                                             "vanilla",
                                                             "math",
                                                             "baddbmm",
                                                             "triton",
                                                             "ring",
                                                             "ulysses",
                                                             "xla",
                                                             "pallas",
                                                             "splash",
                                                             "flex",
                                                             "xformers",
                                                             "materiali",
                                                             "cutlass",
                                                             "default",
                                                             "megatron"});
  constexpr auto kShort = std::to_array<std::string_view>(
      {"te", "fa", "fa1", "fa2", "fa3", "fa4", "ck", "mha", "gqa", "mla", "cp"});
  const std::string words = to_lower(row.attention_impl);
  if (!words.empty() && !says_any(words, kKernels) && !has_word(words, kShort) &&
      !names_unfused_attention(words)) {
    lines.push_back(
        fmt::format("attention_impl \"{}\" as a fused kernel", printable(row.attention_impl, 60)));
  }
}

bool names_fp8(std::string_view clause) {
  constexpr auto kNames = std::to_array<std::string_view>({"fp8", "float8", "mxfp8"});
  return has_word(clause, kNames);
}

// "only MLP in fp8", "first and last 2 layers bf16": products of a plan are all in one format.
void unread_precision(const Measurement& row, Lines& lines) {
  constexpr auto kOnly = std::to_array<std::string_view>({"only"});
  constexpr auto kParts = std::to_array<std::string_view>({"mlp", "ffn", "attention", "experts"});
  constexpr auto kEnds = std::to_array<std::string_view>({"first", "last"});
  constexpr auto kLayers = std::to_array<std::string_view>({"layer", "layers"});
  constexpr auto kWider = std::to_array<std::string_view>({"bf16", "fp16", "16-bit"});
  constexpr auto kProducts =
      std::to_array<std::string_view>({"gemm", "gemms", "matmul", "matmuls", "training", "linear",
                                       "linears", "mixed", "hybrid", "compute"});
  constexpr auto kOthers = std::to_array<std::string_view>(
      {"optimizer", "states", "dispatch", "peak", "inference", "checkpoint", "kv", "activations"});
  const bool narrow = row.precision == "fp8" || row.precision == "mxfp8";
  for (const std::string& clause : asserted_clauses(row.precision_detail + "; " + row.notes)) {
    const bool part = has_word(clause, kOnly) && has_word(clause, kParts) && names_fp8(clause);
    const bool ends =
        has_word(clause, kEnds) && has_word(clause, kLayers) && has_word(clause, kWider);
    if (narrow && (part || ends)) {
      lines.push_back(fmt::format("\"{}\": all products of layers in {}",
                                  printable(trim(clause), 60), row.precision));
    }
    if (!narrow && row.precision.ends_with("16") && names_fp8(clause) &&
        has_word(clause, kProducts) && !has_word(clause, kOthers)) {
      lines.push_back(
          fmt::format("precision {}, not \"{}\"", row.precision, printable(trim(clause), 60)));
    }
  }
}

// "MFU relative to the FP8 peak".
void unread_peak(const Measurement& row, Lines& lines) {
  constexpr auto kPeak = std::to_array<std::string_view>({"peak"});
  constexpr auto kOf =
      std::to_array<std::string_view>({"fp8", "bf16", "fp16", "sparse", "sparsity"});
  if (row.metric != "mfu" && row.metric != "hfu") {
    return;
  }
  for (const std::string& clause : asserted_clauses(row.notes)) {
    if (has_word(clause, kPeak) && has_word(clause, kOf) &&
        clause.find(row.precision) == clause.npos) {
      lines.push_back(fmt::format("\"{}\": {} of the dense peak of {}", printable(trim(clause), 60),
                                  row.metric, row.precision));
    }
  }
}

// Without a scope plans replay layers without experts from graphs.
void unread_graphs(const Measurement& row, Lines& lines) {
  if (!names_graphs(row) || row.experts.value_or(0) == 0) {
    return;
  }
  const plan::Execution execution = row_execution(row, framework_of(row).facts);
  if (execution.graph_scope == plan::GraphScope::Dense) {
    lines.emplace_back("CUDA graphs beside experts as kernels launched one by one");
  }
}

}  // namespace

std::vector<std::string> unread_cells(const Measurement& row) {
  Lines lines;
  unread_heads(row, lines);
  unread_attention(row, lines);
  unread_graphs(row, lines);
  unread_precision(row, lines);
  unread_peak(row, lines);
  add(lines, unread_scaling(row));
  add(lines, unread_offload(row));
  add(lines, unread_recompute(row));
  add(lines, unread_overlap(row));
  add(lines, unread_counting(row));
  add(lines, unread_experts(row));
  add(lines, window_remarks(row));
  add(lines, routing_remarks(row));
  add(lines, recipe_remarks(row));
  add(lines, unread_groups(row));
  add(lines, unread_stages(row));
  add(lines, unmodelled_remarks(row));
  return lines;
}

}  // namespace orrery::studies
