// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/measurement.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "base/limits.hpp"
#include "base/text.hpp"
#include "base/words.hpp"
#include "studies/rows/batch_cells.hpp"
#include "studies/rows/conditions.hpp"
#include "studies/rows/count_words.hpp"
#include "studies/rows/derived_cells.hpp"
#include "studies/rows/framework_facts.hpp"
#include "studies/rows/gpu_words.hpp"
#include "studies/rows/metric.hpp"
#include "studies/rows/other_training.hpp"
#include "studies/rows/recompute_words.hpp"
#include "studies/rows/remark_cells.hpp"
#include "studies/rows/row_columns.hpp"
#include "studies/rows/row_figure.hpp"
#include "studies/rows/row_words.hpp"
#include "studies/rows/settings.hpp"
#include "studies/rows/stated_context.hpp"
#include "studies/rows/table_cells.hpp"
#include "studies/rows/zero_words.hpp"

namespace orrery::studies {
namespace {

// Lengths, widths and machines are powers of two: 4K is 4096.
constexpr auto kLengths = std::to_array<NumberUnit>({{'k', 1024}, {'m', 1024.0 * 1024}});

// "32K" entries are a power of two, "50K" are thousands.
OptionalCount read_vocab(const Cells& cells, Measurement& row) {
  constexpr auto kPlain = std::to_array<NumberUnit>({{'k', 1}});
  constexpr auto kThousands = std::to_array<NumberUnit>({{'k', 1000}});
  const auto printed = static_cast<std::int64_t>(cells.number("vocab", kPlain).value_or(0));
  const bool power = printed > 0 && (printed & (printed - 1)) == 0;
  return round_count(cells, "vocab", limits::kMaxVocab,
                     power ? NumberUnits(kBinary) : NumberUnits(kThousands), row);
}

// In billions: "7B", "345M" and 1.3e9 are numbers of parameters, "8x7B" is a name.
std::optional<double> read_parameters(const Cells& cells, Measurement& row) {
  const std::string cell = cells.optional_text("params_b");
  const std::size_t times = cell.find('x');
  if (times != cell.npos && times > 0 && is_digit(cell[times - 1])) {
    row.remarks.push_back(fmt::format("params_b {} as not stated", printable(cell, 60)));
    return std::nullopt;
  }
  constexpr auto kUnits = std::to_array<NumberUnit>({{'b', 1}, {'m', 1e-3}, {'t', 1e3}});
  constexpr double kMostBillions = 1e6;
  const std::optional<double> value = cells.number("params_b", kUnits);
  return value && *value > kMostBillions ? *value / 1e9 : value;
}

// "64/8" are heads of queries and of keys.
OptionalCount read_heads(const Cells& cells, Measurement& row) {
  const auto both = two_counts(cells.optional_text("heads"));
  const bool grouped = both && both->first <= limits::kMaxHeads && both->first % both->second == 0;
  if (!grouped || row.kv_heads.value_or(both->second) != both->second) {
    return cells.count("heads", limits::kMaxHeads);
  }
  row.kv_heads = both->second;
  row.remarks.push_back(
      fmt::format("heads {}/{} as kv_heads {}", both->first, both->second, both->second));
  return both->first;
}

// "2 of 8" experts.
OptionalCount read_top_k(const Cells& cells, Measurement& row) {
  const auto both = two_counts(to_lower(cells.optional_text("top_k")));
  const bool known = both && both->second <= limits::kMaxExperts && both->first <= both->second &&
                     row.experts.value_or(both->second) == both->second;
  if (!known) {
    return cells.count("top_k", limits::kMaxExperts);
  }
  if (!row.experts) {
    row.experts = both->second;
    row.remarks.push_back(
        fmt::format("top_k {} of {} as experts {}", both->first, both->second, both->second));
  }
  return both->first;
}

// "4h", "4 x hidden": so many times the width.
OptionalCount read_ffn(const Cells& cells, Measurement& row) {
  constexpr auto kWidth = std::to_array<std::string_view>({"h", "hidden", "hidden size"});
  const std::string cell = to_lower(cells.optional_text("ffn_hidden"));
  double times = 0;
  const auto read = std::from_chars(cell.data(), cell.data() + cell.size(), times);
  std::string_view noun = trim(std::string_view(read.ptr, cell.data() + cell.size()));
  noun.remove_prefix(noun.starts_with('x') || noun.starts_with('*') ? 1 : 0);
  const double width = times * static_cast<double>(row.hidden.value_or(0));
  if (read.ec != std::errc() || !is_among(with_blanks(trim(noun)), kWidth) ||
      !(width >= 1 && width <= static_cast<double>(limits::kMaxFfn)) ||
      width != std::floor(width)) {
    return round_count(cells, "ffn_hidden", limits::kMaxFfn, kBinary, row);
  }
  const auto count = static_cast<std::int64_t>(width);
  row.remarks.push_back(fmt::format("ffn_hidden {} as {}", printable(cell, 60), count));
  return count;
}

// "32 (8 KV)", "32 (GQA 8)" of `heads`, where `kv_heads` is blank.
void read_bracketed_kv_heads(const Cells& cells, Measurement& row) {
  const std::string cell = to_lower(cells.optional_text("heads"));
  const std::int64_t count = bracketed_kv_heads(cell);
  const std::int64_t heads = row.heads.value_or(0);
  if (!row.kv_heads && count > 0 && count <= heads && heads % count == 0) {
    row.kv_heads = count;
    row.remarks.push_back(fmt::format("heads {} as kv_heads {}", printable(cell, 60), count));
  }
}

void read_network(const Cells& cells, Measurement& row) {
  constexpr auto kGated = std::to_array<std::string_view>({"gated", "swiglu", "geglu"});
  constexpr auto kPlain = std::to_array<std::string_view>({"gelu", "relu", "squared relu"});
  constexpr auto kTied = std::to_array<std::string_view>({"tied"});
  constexpr auto kUntied = std::to_array<std::string_view>({"untied"});
  row.model_family = to_lower(cells.optional_text("model_family"));
  row.model_name = cells.optional_text("model_name");
  row.params_b = read_parameters(cells, row);
  row.layers = cells.count("layers", limits::kMaxLayers);
  row.hidden = round_count(cells, "hidden", limits::kMaxHidden, kBinary, row);
  row.kv_heads = cells.count("kv_heads", limits::kMaxHeads);
  row.heads = read_heads(cells, row);
  read_bracketed_kv_heads(cells, row);
  row.head_dim = cells.count("head_dim", limits::kMaxHidden);
  row.ffn_hidden = read_ffn(cells, row);
  row.gated_mlp = cells.flag("gated_mlp", {kGated, kPlain});
  row.vocab = read_vocab(cells, row);
  row.seq_len = round_count(cells, "seq_len", limits::kMaxSequence, kLengths, row);
  row.tied_embeddings = cells.flag("tied_embeddings", {kTied, kUntied});
  const bool dense = to_lower(cells.optional_text("experts")) == "dense";
  row.experts = dense ? OptionalCount(0) : cells.count("experts", limits::kMaxExperts);
  row.top_k = read_top_k(cells, row);
  row.moe_ffn_hidden = cells.count("moe_ffn_hidden", limits::kMaxFfn);
  row.shared_expert_ffn = cells.count("shared_expert_ffn", limits::kMaxFfn);
  row.first_dense_layers = cells.count("first_dense_layers", limits::kMaxLayers);
}

void read_hardware(const Cells& cells, Measurement& row) {
  const std::string precision = cells.optional_text("precision");
  row.precision = precision_name(precision);
  row.precision_detail = cells.optional_text("precision_detail");
  if (row.precision_detail.empty() && to_lower(precision) != row.precision) {
    row.precision_detail = precision;  // "fp8 (rowwise)"
  }
  row.gpu = cells.text("gpu");
  row.gpus_per_node = cells.degree("gpus_per_node", limits::kMaxDevices);
  row.gpus = read_gpus(cells, row);
  row.intra_node = cells.optional_text("intra_node");
  row.inter_node = cells.optional_text("inter_node");
  row.framework = cells.optional_text("framework");
  row.attention_impl = cells.optional_text("attention_impl");
}

// "ZeRO-3 (CPU offload)" in words, or the number.
void read_stage(const Cells& cells, Measurement& row) {
  constexpr std::int64_t kLast = 3;
  row.zero_detail = cells.optional_text("zero_stage");
  row.zero_stage = stage_of_zero(row.zero_detail);
  if (to_lower(row.zero_detail) == "none" && !shards_parameters(row)) {
    row.zero_stage = 0;  // of what shards by itself it states nothing
  }
  const std::string_view detail = row.zero_detail;
  const std::string_view number = trim(detail.substr(0, detail.find('(')));
  const bool words = number.find_first_not_of("~.0123456789") != number.npos;
  if (row.zero_stage || cells.is_open("zero_stage")) {
    return;
  }
  if (words) {
    row.unknown = fmt::format("zero_stage \"{}\" is not known (0 to 3, ZeRO-n, FSDP or DDP)",
                              printable(row.zero_detail, 60));
  } else {
    row.zero_stage = cells.count("zero_stage", kLast);
  }
}

// "Interleaved 1F1B (vpp=5)" states model chunks that the column of their number may leave blank.
void read_schedule(const Cells& cells, Measurement& row) {
  const std::string cell = cells.optional_text("schedule");
  row.schedule = schedule_name(cell);
  if (const std::string left_out = unmodelled_part(cell); !left_out.empty()) {
    row.remarks.push_back(
        fmt::format("schedule {} as {}, {}", printable(cell, 60), row.schedule, left_out));
  }
  if (const std::string meant = misspelt_schedule(row.schedule); !meant.empty()) {
    row.remarks.push_back(fmt::format("schedule {} as {}", printable(cell, 60), meant));
    row.schedule = meant;
  }
  OptionalCount chunks = chunks_in_schedule(cell);
  if (row.schedule == "interleaved" && !chunks && !row.vpp) {
    chunks = chunks_in_schedule(cells.optional_text("variant"));
  }
  if (!chunks || row.vpp == chunks) {
    return;
  }
  if (row.vpp) {
    row.remarks.push_back(
        fmt::format("vpp {}, not the {} of \"{}\"", *row.vpp, *chunks, printable(cell, 60)));
  } else if (!row.most_chunks) {
    row.vpp = chunks;
  }
}

void read_plan(const Cells& cells, Measurement& row) {
  row.tp = cells.degree("tp", limits::kMaxDevices);
  read_context_ranks(cells, row);
  row.ep = cells.degree("ep", limits::kMaxDevices);
  row.pp = cells.degree("pp", limits::kMaxDevices);
  // "max (1 layer per chunk)" states no number.
  row.most_chunks = cells.optional_text("vpp").starts_with("max");
  row.vpp = row.most_chunks ? std::nullopt : cells.degree("vpp", limits::kMaxLayers);
  row.dp = cells.degree("dp", limits::kMaxDevices);
  read_stage(cells, row);
  read_sequence_parallel(cells, row);
  const RecomputeWords recompute =
      recompute_words(cells.optional_text("recompute"), cells.optional_text("recompute_detail"));
  row.recompute = recompute.name;
  if (!recompute.read_as.empty()) {
    row.remarks.push_back(fmt::format(
        "recompute {} as {}", printable(cells.optional_text("recompute"), 60), recompute.read_as));
  }
  row.recompute_detail = recompute.detail;
  read_schedule(cells, row);
  row.variant = variant_name(cells.optional_text("variant"));
  row.micro_batch = read_batch(cells, "micro_batch", row);
  row.num_microbatches = cells.degree("num_microbatches", limits::kMaxBatch);
  row.global_batch = read_batch(cells, "global_batch", row);
  row.overlap = cells.optional_text("overlap");
}

// "2024-05", "2023/24" and "May 2024" are of the first year that they name; no row is lost for
// another date.
OptionalCount year_of(const Cells& cells, Measurement& row) {
  constexpr std::string_view kDigits = "0123456789";
  constexpr std::size_t kYear = 4;
  const std::string text = cells.optional_text("year");
  for (std::size_t at = text.find_first_of(kDigits); at < text.size();) {
    const std::size_t end = std::min(text.size(), text.find_first_not_of(kDigits, at));
    const std::string_view century = std::string_view(text).substr(at, 2);
    if (end - at == kYear && (century == "19" || century == "20")) {
      return std::stoi(text.substr(at, kYear));
    }
    at = text.find_first_of(kDigits, end);
  }
  if (!text.empty()) {
    row.remarks.push_back(fmt::format("year {} as not stated", printable(text, 60)));
  }
  return std::nullopt;
}

// "ful" and "full (inferred)" are read as what they begin with or are misspelt from, which a remark
// says; of another word nobody knows whether it means that everything is stated.
void read_confidence(const Cells& cells, Measurement& row) {
  static const std::vector<std::string> kWords = {"full", "partial"};
  const std::string cell = cells.optional_text("confidence");
  const std::string word = to_lower(cell);
  if (cell.empty()) {
    row.remarks.emplace_back("confidence not stated, as partial");
    return;
  }
  const std::string said = letters_and_digits(before_remark(cell));
  const bool known = std::ranges::find(kWords, said) != kWords.end();
  const std::string misspelt = known ? said : misspelt_name(said, kWords);
  const std::string meant = misspelt.empty() ? "partial" : misspelt;
  row.full = meant == "full";
  if (word != meant) {
    row.remarks.push_back(fmt::format("confidence {} as {}{}", printable(cell, 60), meant,
                                      misspelt.empty() ? " (it is full or partial)" : ""));
  }
}

// Who the row is, whatever its other cells hold.
Measurement identity_of(const Cells& cells, std::size_t index, const std::string& source) {
  Measurement row;
  row.where = fmt::format("{}:{}", cells.table().name(), cells.table().line(index));
  row.source = source;
  row.origin = cells.optional_text("source");
  row.id = cells.table().cell(index, "id");
  // A row by itself is a configuration of its own.
  const std::string config = cells.printed("config_id");
  row.config_id = config.empty() ? row.id : config;
  row.full = to_lower(cells.optional_text("confidence")) == "full";
  row.model_name = cells.optional_text("model_name");
  row.gpu = cells.text("gpu");
  row.metric = to_lower(cells.text("measured_metric"));
  return row;
}

// A row that another one of its file shares the name with: whoever looks it up finds two.
void note_repeated_ids(std::vector<Measurement>& rows) {
  std::map<std::string, std::string> first;
  for (Measurement& row : rows) {
    const auto [known, is_new] = first.emplace(row.id, row.where);
    if (!is_new && !row.id.empty()) {
      row.remarks.push_back(fmt::format("id {} is that of {}, too", printable(row.id, 60),
                                        printable(known->second, 100)));
    }
  }
}

}  // namespace

std::string remarks_of(const Measurement& row) { return row.notes + "; " + row.variant; }

bool Measurement::notes_say(std::string_view phrase) const { return says_and_means(notes, phrase); }

bool Measurement::overlap_says(std::string_view phrase) const {
  return says_and_means(overlap, phrase);
}

bool is_measurement_table(const CsvTable& table) {
  return table.has_column("measured_metric") ||
         (table.has_column("config_id") && table.has_column("measured_value"));
}

Measurement read_measurement(const CsvTable& table, std::size_t index, const std::string& source) {
  const Cells cells(table, index);
  Measurement row = identity_of(cells, index, source);
  read_confidence(cells, row);
  row.year = year_of(cells, row);
  read_network(cells, row);
  read_hardware(cells, row);
  read_plan(cells, row);
  read_figure(cells, row);
  row.notes =
      without_own_conditions(row.notes, {row.model_name, row.params_b, row.gpus, row.seq_len});
  read_stated_counts(row);
  read_stated_cells(row);
  settle_metric(row);
  if (row.unknown.empty()) {
    row.unknown = no_plain_training(row);
  }
  if (row.unknown.empty()) {
    row.unknown = counted_modules(row, cells.optional_text("gpus"));
  }
  return row;
}

std::vector<Measurement> read_measurements(const CsvTable& table, const std::string& source) {
  check_measurement_columns(table);
  std::vector<Measurement> rows;
  rows.reserve(table.num_rows());
  for (std::size_t index = 0; index < table.num_rows(); ++index) {
    try {
      rows.push_back(read_measurement(table, index, source));
    } catch (const Error& error) {
      rows.push_back(identity_of(Cells(table, index), index, source));
      rows.back().unknown = error.what();
    }
  }
  note_repeated_ids(rows);
  return rows;
}

}  // namespace orrery::studies
