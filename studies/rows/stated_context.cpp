// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/stated_context.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.hpp"
#include "base/words.hpp"
#include "studies/rows/degree_cells.hpp"
#include "studies/rows/denials.hpp"
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

}  // namespace

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
  const std::int64_t heads = count_in_remarks(row, kNames, kNoRanks).value_or(0);
  const std::int64_t all = row.cp.value_or(1);
  return heads > 1 && heads < all && all % heads == 0 ? static_cast<int>(heads) : 0;
}

}  // namespace orrery::studies
