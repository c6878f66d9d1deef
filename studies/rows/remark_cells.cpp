// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/remark_cells.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "base/text.hpp"
#include "studies/rows/recompute_words.hpp"
#include "studies/rows/row_words.hpp"
#include "studies/rows/settings.hpp"

namespace orrery::studies {
namespace {

// The clauses about this run, denials and all, with blanks as settings have them.
std::vector<std::string> clauses_of(const Measurement& row) {
  std::string text = with_blanks(about_this_run(row.notes + "; " + row.variant));
  std::replace_if(
      text.begin(), text.end(),
      [](char c) { return std::string_view(",()\n").find(c) != std::string_view::npos; }, ';');
  std::vector<std::string> clauses;
  for (const std::string_view clause : split(text, ';')) {
    clauses.emplace_back(trim(clause));
  }
  return clauses;
}

// Whether a clause is about what somebody counts, guesses or does not know.
bool is_no_statement(std::string_view clause) {
  constexpr auto kWords =
      std::to_array<std::string_view>({"flop", "mfu", "hfu", "count", "formula", "stated", "given",
                                       "known", "inferred", "assum", "clear", "may be"});
  return says_any(clause, kWords);
}

void read_recompute(const std::string& clause, Measurement& row) {
  constexpr auto kNames = std::to_array<std::string_view>(
      {"gradient checkpointing", "activation checkpointing", "activation checkpoint",
       "activation recomputation", "activation recompute", "recompute granularity",
       "recompute activations", "recomputation", "recompute", "rematerialization", "remat",
       "full ac", "selective ac", "sac"});
  if (!has_word(clause, kNames)) {
    return;
  }
  const bool denied = switch_set(clause, kNames) == false;
  const RecomputeWords words =
      denied ? RecomputeWords{"none", "", ""} : recompute_words(clause, "");
  if (words.name == "none" || words.name == "full" || words.name == "selective") {
    row.recompute = words.name;
    row.recompute_detail = words.detail;
    row.remarks.push_back(fmt::format("recompute {} (\"{}\")", words.name, printable(clause, 60)));
  }
}

void read_attention(const std::string& clause, Measurement& row) {
  constexpr auto kNames = std::to_array<std::string_view>(
      {"fa2", "fa3", "fa4", "flashattention", "flashattention2", "flashattention3",
       "flash attention", "flash attn", "sdpa", "attn implementation", "attn impl",
       "attention implementation", "eager attention", "naive attention", "unfused attention",
       "cudnn attention", "xformers"});
  if (!has_word(clause, kNames)) {
    return;
  }
  const bool denied = trim(asserted(clause)).empty();
  row.attention_impl = denied ? "unfused: " + clause : clause;
  row.remarks.push_back(fmt::format("attention_impl {}", printable(row.attention_impl, 60)));
}

void read_stage(const std::string& clause, Measurement& row) {
  constexpr auto kStages =
      std::to_array<std::string_view>({"zero stage", "zero", "deepspeed stage"});
  constexpr auto kSharded = std::to_array<std::string_view>(
      {"fsdp", "fsdp2", "hsdp", "fully sharded", "fully shard", "zero3"});
  constexpr auto kDistributed = std::to_array<std::string_view>(
      {"use distributed optimizer", "distributed optimizer", "zero1"});
  constexpr auto kTwo = std::to_array<std::string_view>({"zero2"});
  const double stage = number_set(clause, kStages).value_or(-1);
  const std::string said = asserted(clause);
  if (stage >= 0 && stage <= 3 && stage == std::floor(stage)) {
    row.zero_stage = static_cast<std::int64_t>(stage);
  } else if (has_word(said, kSharded)) {
    row.zero_stage = 3;
  } else if (has_word(said, kTwo)) {
    row.zero_stage = 2;
  } else if (const auto on = switch_set(clause, kDistributed)) {
    row.zero_stage = *on ? 1 : 0;
  } else {
    return;
  }
  row.remarks.push_back(
      fmt::format("zero_stage {} (\"{}\")", *row.zero_stage, printable(clause, 60)));
}

}  // namespace

void read_stated_cells(Measurement& row) {
  for (const std::string& clause : clauses_of(row)) {
    if (is_no_statement(clause)) {
      continue;
    }
    if (row.recompute.empty() && row.recompute_detail.empty()) {
      read_recompute(clause, row);
    }
    if (row.attention_impl.empty()) {
      read_attention(clause, row);
    }
    if (!row.zero_stage && row.zero_detail.empty()) {
      read_stage(clause, row);
    }
  }
}

}  // namespace orrery::studies
