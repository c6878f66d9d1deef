// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/row_columns.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/text.hpp"

namespace orrery::studies {
namespace {

// Without these a row means nothing; every other column may be absent.
constexpr auto kRequiredColumns =
    std::to_array<std::string_view>({"id", "gpu", "gpus", "measured_metric", "measured_value"});

constexpr std::string_view kOtherColumns =
    "config_id confidence model_family source source_ref year model_name params_b layers hidden "
    "heads kv_heads head_dim ffn_hidden gated_mlp vocab seq_len "
    "tied_embeddings experts top_k moe_ffn_hidden shared_expert_ffn first_dense_layers "
    "precision precision_detail gpus_per_node intra_node inter_node framework attention_impl tp cp "
    "ep pp vpp dp "
    "zero_stage sequence_parallel recompute recompute_detail schedule variant "
    "micro_batch num_microbatches global_batch overlap aux_metrics flops_convention "
    "inferred_fields notes";

std::vector<std::string> absent_columns(const CsvTable& table,
                                        std::span<const std::string_view> columns) {
  std::vector<std::string> absent;
  for (const std::string_view column : columns) {
    if (!table.has_column(column)) {
      absent.emplace_back(column);
    }
  }
  return absent;
}

// Other tools' names, by letters and digits.
constexpr auto kOtherNames = std::to_array<std::pair<std::string_view, std::string_view>>(
    {{"mbs", "micro_batch"},
     {"microbatchsize", "micro_batch"},
     {"gbs", "global_batch"},
     {"globalbatchsize", "global_batch"},
     {"numlayers", "layers"},
     {"nlayers", "layers"},
     {"hiddensize", "hidden"},
     {"hiddendim", "hidden"},
     {"numheads", "heads"},
     {"nheads", "heads"},
     {"attentionheads", "heads"},
     {"numattentionheads", "heads"},
     {"numkeyvalueheads", "kv_heads"},
     {"numquerygroups", "kv_heads"},
     {"intermediatesize", "ffn_hidden"},
     {"ffnhiddensize", "ffn_hidden"},
     {"vocabsize", "vocab"},
     {"sequencelength", "seq_len"},
     {"seqlength", "seq_len"},
     {"seq", "seq_len"},
     {"dtype", "precision"},
     {"numgpus", "gpus"},
     {"ngpus", "gpus"},
     {"worldsize", "gpus"},
     {"zero", "zero_stage"},
     {"sp", "sequence_parallel"},
     {"metric", "measured_metric"},
     {"value", "measured_value"}});

// The absent column that a name means: misspelt, with a unit in brackets, or as others call it.
std::string meant_column(const std::string& name, const std::vector<std::string>& absent) {
  if (std::string meant = misspelt_name(name, absent); !meant.empty()) {
    return meant;
  }
  const std::string key = letters_and_digits(name.substr(0, name.find('(')));
  const auto* const other = std::ranges::find(kOtherNames, std::string_view(key),
                                              [](const auto& one) { return one.first; });
  const std::string column =
      letters_and_digits(other == kOtherNames.end() ? std::string_view(key) : other->second);
  const auto known = std::ranges::find(
      absent, column, [](const std::string& one) { return letters_and_digits(one); });
  return known == absent.end() ? std::string() : *known;
}

}  // namespace

void check_measurement_columns(const CsvTable& table) {
  std::vector<std::string_view> known = split(kOtherColumns, ' ');
  known.insert(known.end(), kRequiredColumns.begin(), kRequiredColumns.end());
  const std::vector<std::string> unused = absent_columns(table, known);
  for (const std::string& column : table.header()) {
    const std::string name = to_lower(column);
    const bool is_known = std::ranges::find(known, name) != known.end();
    const std::string meant = is_known ? std::string() : meant_column(name, unused);
    if (!meant.empty()) {
      bad_input(table.name(), fmt::format("unknown column \"{}\"", printable(column)),
                fmt::format("did you mean \"{}\"?", meant));
    }
  }
  if (const auto absent = absent_columns(table, kRequiredColumns); !absent.empty()) {
    bad_input(table.name(), fmt::format("no column {}", fmt::join(absent, ", ")),
              "runs are described by the columns of docs/validation.md");
  }
}

}  // namespace orrery::studies
