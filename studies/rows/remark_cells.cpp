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

// The clauses about this run, denials and all, in lower case.
std::vector<std::string> clauses_of(const Measurement& row) {
  std::string text = about_this_run(row.notes + "; " + row.variant);
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
  constexpr auto kWords = std::to_array<std::string_view>(
      {"flop", "mfu", "hfu", "count", "formula", "stated", "given", "known", "inferred", "assum",
       "clear", "may be", "overhead", "avoid"});
  return says_any(clause, kWords);
}

void read_recompute(const std::string& clause, Measurement& row) {
  constexpr auto kNames = std::to_array<std::string_view>(
      {"gradient checkpointing", "activation checkpointing", "activation checkpoint",
       "activation recomputation", "activation recompute", "recompute granularity",
       "recompute activations", "recomputation", "recompute", "rematerialization", "remat",
       "full ac", "selective ac", "sac"});
  if (!has_word(with_blanks(clause), kNames)) {
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
  // Without these, attention is two products with softmax between them; "no FA3" leaves it open.
  constexpr auto kFused =
      std::to_array<std::string_view>({"flashattention", "flash attention", "flash attn", "sdpa"});
  const std::string plain = with_blanks(clause);
  if (!has_word(plain, kNames)) {
    return;
  }
  const bool denied = trim(asserted(plain)).empty();
  if (denied && !has_word(plain, kFused)) {
    return;
  }
  row.attention_impl = denied ? "unfused: " + plain : plain;
  row.remarks.push_back(fmt::format("attention_impl {}", printable(row.attention_impl, 60)));
}

OptionalCount numbered_stage(const std::string& clause) {
  constexpr auto kStages =
      std::to_array<std::string_view>({"zero stage", "zero", "deepspeed stage"});
  const double stage = number_set(clause, kStages).value_or(-1);
  return stage >= 0 && stage <= 3 && stage == std::floor(stage)
             ? OptionalCount(static_cast<std::int64_t>(stage))
             : std::nullopt;
}

OptionalCount named_stage(const std::string& clause) {
  constexpr auto kSharded = std::to_array<std::string_view>(
      {"fsdp", "fsdp2", "hsdp", "fully sharded", "fully shard", "zero3"});
  constexpr auto kDistributed = std::to_array<std::string_view>(
      {"use distributed optimizer", "distributed optimizer", "zero1"});
  constexpr auto kTwo = std::to_array<std::string_view>({"zero2"});
  const std::string said = asserted_with_blanks(clause);
  if (has_word(said, kSharded)) {
    return 3;
  }
  if (has_word(said, kTwo)) {
    return 2;
  }
  const std::optional<bool> on = switch_set(clause, kDistributed);
  return on ? OptionalCount(*on ? 1 : 0) : std::nullopt;
}

// A number counts before a name: "FSDP (ZeRO-2)".
void read_stage(const std::vector<std::string>& clauses, Measurement& row) {
  for (const auto stage_in : {numbered_stage, named_stage}) {
    for (const std::string& clause : clauses) {
      if (const OptionalCount stage = stage_in(clause)) {
        row.zero_stage = stage;
        row.remarks.push_back(fmt::format("zero_stage {} (\"{}\")", *stage, printable(clause, 60)));
        return;
      }
    }
  }
}

}  // namespace

void read_stated_cells(Measurement& row) {
  std::vector<std::string> clauses = clauses_of(row);
  std::erase_if(clauses, is_no_statement);
  for (const std::string& clause : clauses) {
    if (row.recompute.empty() && row.recompute_detail.empty()) {
      read_recompute(clause, row);
    }
    if (row.attention_impl.empty()) {
      read_attention(clause, row);
    }
  }
  if (!row.zero_stage && row.zero_detail.empty()) {
    read_stage(clauses, row);
  }
}

}  // namespace orrery::studies
