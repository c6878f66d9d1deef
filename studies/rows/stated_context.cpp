// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/stated_context.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/limits.hpp"
#include "base/text.hpp"
#include "base/words.hpp"
#include "studies/rows/degree_cells.hpp"
#include "studies/rows/denials.hpp"
#include "studies/rows/row_words.hpp"
#include "studies/rows/settings.hpp"

namespace orrery::studies {
namespace {

// Whether context ranks exchange heads for sequences: "Ulysses", "cp_comm_type=a2a", "CP via
// all-to-all". What experts exchange says nothing of it.
bool names_exchange(std::string_view clause) {
  constexpr auto kContext = std::to_array<std::string_view>({"cp", "context parallel", "context"});
  constexpr auto kExchange =
      std::to_array<std::string_view>({"a2a", "all to all", "alltoall", "all2all"});
  constexpr auto kOthers = std::to_array<std::string_view>({"p2p", "ep", "moe", "expert"});
  return clause.find("ulysses") != clause.npos ||
         (has_word(clause, kContext) && has_word(clause, kExchange) && !has_word(clause, kOthers));
}

bool says_ulysses_or_ring(std::string_view cell) {
  constexpr auto kWords = std::to_array<std::string_view>({"ulysses", "ring"});
  return says_any(to_lower(cell), kWords);
}

constexpr std::int64_t kTooMany = limits::kMaxDevices + 1;

// Takes the first number off a text; 0 where it has none.
std::int64_t take_ranks(std::string_view& text) {
  std::int64_t ranks = 0;
  text.remove_prefix(std::min(text.size(), text.find_first_of("0123456789")));
  const auto read = std::from_chars(text.data(), text.data() + text.size(), ranks);
  text.remove_prefix(static_cast<std::size_t>(read.ptr - text.data()));
  return read.ec == std::errc::result_out_of_range ? kTooMany : std::min(ranks, kTooMany);
}

// The ranks over sequences of a cell: its number, of both kinds the product ("Ulysses 8 x ring 4");
// 0 where there is none.
std::int64_t ranks_in_words(std::string_view cell) {
  const std::string_view words = before_remark(cell);
  const bool both = mentions(words, "ulysses") && mentions(words, "ring");
  std::string_view rest = cell;
  const std::int64_t first = take_ranks(rest);
  const std::int64_t second = both ? take_ranks(rest) : 0;
  return second > 0 ? std::min(first * second, kTooMany) : first;
}

// InternEvo's "isp" has ranks over sequences, which exchange heads, in the place of tensor ranks
// (InternLM/InternEvo doc/code-docs/source/parallel.rst).
bool moves_tensor_ranks(std::string_view words, Measurement& row) {
  const std::int64_t ranks = row.tp.value_or(1);
  if (words != "isp" || row.cp.value_or(1) > 1) {
    return false;
  }
  row.sequence_detail = "ulysses";
  if (ranks > 1) {
    row.cp = ranks;
    row.tp = 1;
    row.remarks.push_back(fmt::format("tp {0} of isp as cp {0}", ranks));
  }
  return true;
}

}  // namespace

void read_context_ranks(const Cells& cells, Measurement& row) {
  const std::string cell = cells.optional_text("cp");
  const std::int64_t ranks = says_ulysses_or_ring(before_remark(cell)) ? ranks_in_words(cell) : 0;
  if (ranks > 0 && ranks <= limits::kMaxDevices) {
    row.cp = ranks;
    row.sequence_detail = cell;
  } else {
    row.cp = cells.degree("cp", limits::kMaxDevices);
  }
}

// A flag, what it is of ("Megatron SP", Colossal-AI's "split_gather", InternEvo's "msp" and "fsp",
// but "mtp", nanotron's "REDUCE_SCATTER", but "ALL_REDUCE"), or ranks over sequences: "Ulysses 8"
// and, where tensors are whole, "8" are a `cp`.
void read_sequence_parallel(const Cells& cells, Measurement& row) {
  constexpr auto kOfTensors = std::to_array<std::string_view>(
      {"sp", "megatron", "tp", "tensor", "split gather", "msp", "fsp", "reduce scatter"});
  constexpr auto kWholeSequences =
      std::to_array<std::string_view>({"mtp", "all_reduce", "all-reduce", "allreduce"});
  const std::string cell = cells.optional_text("sequence_parallel");
  const std::int64_t ranks = ranks_in_words(cell);
  const bool named = says_ulysses_or_ring(cell);
  const std::string words = asserted_with_blanks(before_remark(cell));
  const bool is_truth = truth_of(words.substr(0, words.find(' '))).has_value();
  if (ranks > 1 && ranks <= limits::kMaxDevices && row.cp.value_or(ranks) == ranks &&
      (named || row.tp.value_or(1) == 1)) {
    row.cp = ranks;
    row.sequence_detail = cell;
    row.remarks.push_back(fmt::format("sequence_parallel {} as cp {}", printable(cell, 60), ranks));
  } else if (ranks == 0 && named) {
    row.sequence_detail = cell;
  } else if (moves_tensor_ranks(words, row)) {
    return;
  } else if (ranks == 0 && !is_truth && words == with_blanks(before_remark(cell)) &&
             has_word(words, kOfTensors)) {
    row.sequence_parallel = true;
  } else {
    row.sequence_parallel = cells.flag("sequence_parallel", {{}, kWholeSequences});
  }
}

// DeepSpeed's own is Ulysses (deepspeed/sequence/layer.py), as far as the heads go.
bool exchanges_heads(const Measurement& row) {
  constexpr auto kRings =
      std::to_array<std::string_view>({"ring", "ringattention", "striped", "zigzag"});
  const std::string text = asserted_with_blanks(
      fmt::format("{}; {}; {}; {}; {}; {}", row.notes, row.overlap, row.attention_impl, row.variant,
                  row.framework, row.sequence_detail));
  const std::vector<std::string> clauses = asserted_clauses(text);
  const bool said = std::ranges::any_of(clauses, [](auto& one) { return names_exchange(one); });
  const std::int64_t ranks = row.tp.value_or(1) * row.cp.value_or(1);
  const bool usual = row.cp.value_or(1) > 1 && mentions(row.framework, "deepspeed") &&
                     row.heads.value_or(0) % ranks == 0;
  return said || (usual && !has_word(text, kRings));
}

// USP and LoongTrain have groups of both kinds, Megatron-Core's a2a+p2p, too
// (hierarchical_context_parallel_sizes, the inner one first).
int ranks_of_heads(const Measurement& row) {
  constexpr auto kNames = std::to_array<std::string_view>(
      {"ulysses", "ulysses degree", "ulysses sp", "ulysses parallel", "head parallel",
       "head parallelism", "hierarchical context parallel sizes"});
  constexpr auto kNoRanks = std::to_array<std::string_view>({"head"});  // "Ulysses: 4 heads a rank"
  const double in_cell = number_set(row.sequence_detail, kNames, kNoRanks).value_or(0);
  const std::int64_t heads = in_cell >= 1 && in_cell <= limits::kMaxDevices
                                 ? static_cast<std::int64_t>(in_cell)
                                 : count_in_remarks(row, kNames, kNoRanks).value_or(0);
  const std::int64_t all = row.cp.value_or(1);
  return heads > 1 && heads < all && all % heads == 0 ? static_cast<int>(heads) : 0;
}

}  // namespace orrery::studies
