// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/stated_groups.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string_view>

#include "base/text.hpp"
#include "base/words.hpp"
#include "studies/rows/denials.hpp"
#include "studies/rows/row_words.hpp"
#include "studies/rows/settings.hpp"
#include "studies/rows/stated_mesh.hpp"

namespace orrery::studies {
namespace {

// Columns that may name groups, in the form of settings. ZeRO++'s hpZ keeps a second copy of the
// parameters in a node, no group of its own for the states.
std::string groups_text(const Measurement& row) {
  constexpr auto kInName = std::to_array<std::string_view>({"hsdp", "hybrid", "mics"});
  constexpr std::string_view kSecond = "hpz partition size";
  const bool named = says_any(to_lower(row.framework), kInName);
  std::string text =
      with_blanks(about_this_run(remarks_of(row) + "; " + row.zero_detail + "; " + row.overlap +
                                 (named ? "; " + row.framework : std::string())));
  for (std::size_t at = text.find(kSecond); at != text.npos; at = text.find(kSecond, at)) {
    text.replace(at, kSecond.size(), "hpz");
  }
  return text;
}

// A count of ranks by one of its names; 0 where none is stated.
int count_named(std::string_view remarks, SettingNames names) {
  constexpr double kMost = 40'000;  // a product of two is a number of GPUs, too
  constexpr auto kNoRanks = std::to_array<std::string_view>(
      {"node", "replica", "cop", "island", "rack", "pod", "%", "gb", "gib", "mb", "mib", "b ",
       "way repl", "group", "shard group", "sharding group"});
  const double number = number_set(remarks, names, kNoRanks).value_or(0);
  return number >= 1 && number <= kMost && number == std::floor(number) ? static_cast<int>(number)
                                                                        : 0;
}

// Whether "shard 16" and "replicate 4" are said of states.
bool speaks_of_groups(std::string_view remarks) {
  constexpr auto kNames = std::to_array<std::string_view>({"hsdp", "fsdp", "hybrid", "mics"});
  constexpr auto kShard = std::to_array<std::string_view>({"shard"});
  constexpr auto kReplicate = std::to_array<std::string_view>({"replicate"});
  return says_any(remarks, kNames) || (has_word(remarks, kShard) && has_word(remarks, kReplicate));
}

// What is sharded beside states.
constexpr auto kOfOthers =
    std::to_array<std::string_view>({"expert", "tensor", "tp", "vocab", "embedding", "dataset",
                                     "checkpoint", "sequence", "pipeline"});

// The number right before one of the nouns: "64 gpu shard groups", "8 replicas", not "tensor 8-way
// sharding"; 0 where none is.
int count_before(std::string_view remarks, SettingNames nouns) {
  const std::string said = asserted(remarks);
  for (const std::string_view noun : nouns) {
    const std::size_t at = find_word(said, noun);
    const std::string_view before =
        trim(std::string_view(said).substr(0, at == said.npos ? 0 : at));
    const std::size_t digits = before.find_last_not_of("0123456789") + 1;
    int count = 0;
    const auto read = std::from_chars(before.data() + digits, before.data() + before.size(), count);
    const std::string_view in_front = trim(before.substr(0, digits));
    const std::string_view of = in_front.substr(in_front.find_last_of(' ') + 1);
    if (read.ec == std::errc() && count > 0 && !is_among(of, kOfOthers)) {
      return count;
    }
  }
  return 0;
}

// "Shard groups of 64" are each a shard group of 64.
std::string in_singular(std::string_view remarks) {
  constexpr std::string_view kSeveral = "groups of";
  std::string text(remarks);
  for (std::size_t at = text.find(kSeveral); at != text.npos; at = text.find(kSeveral, at)) {
    text.replace(at, kSeveral.size(), "group of");
  }
  return text;
}

// "ZeRO-1 states sharded over 8 ranks", "optimizer sharded in groups of 8": of states alone.
int ranks_of_sharding(std::string_view remarks) {
  constexpr auto kOver = std::to_array<std::string_view>(
      {"sharded over", "sharding over", "sharded across", "sharding across", "sharded among",
       "sharded in group", "sharded within group"});
  constexpr auto kStates = std::to_array<std::string_view>(
      {"zero", "fsdp", "hsdp", "optimizer", "optimiser", "state", "param", "gradient"});
  for (const std::string& clause : asserted_clauses(remarks)) {
    const int ranks = count_named(clause, kOver);
    if (ranks > 1 && says_any(clause, kStates) && !has_word(clause, kOfOthers)) {
      return ranks;
    }
  }
  return 0;
}

// torchtitan's data_parallel_shard_degree, MaxText's ici_fsdp_parallelism (each over
// dcn_fsdp_parallelism nodes), DeepSpeed's MiCS partitions and words for them.
int stated_ranks(std::string_view remarks) {
  constexpr auto kGroups = std::to_array<std::string_view>(
      {"sharding group",  "shard group",    "fsdp group",  "zero1 group",         "zero 1 group",
       "zero group",      "partition size", "dp shard",    "data parallel shard", "sharding degree",
       "sharding size",   "zero1 size",     "zero 1 size", "shard size",          "shard degree",
       "fsdp size",       "fsdp degree",    "hsdp",        "hybrid zero",         "mics",
       "mics shard size", "mics group"});
  constexpr auto kBare = std::to_array<std::string_view>({"shard"});
  constexpr auto kCounted = std::to_array<std::string_view>(
      {"gpu shard group", "gpu shard groups", "gpu sharding groups", "gpu fsdp groups",
       "gpu hsdp groups", "rank shard groups", "way shard", "way sharding", "way fsdp"});
  constexpr auto kInSlice = std::to_array<std::string_view>({"ici fsdp parallelism"});
  constexpr auto kSlices = std::to_array<std::string_view>({"dcn fsdp parallelism"});
  if (const int in_slice = count_named(remarks, kInSlice); in_slice > 0) {
    return in_slice * std::max(1, count_named(remarks, kSlices));
  }
  const std::string each = in_singular(remarks);
  int ranks = count_named(each, kGroups);
  ranks = ranks == 0 ? count_before(remarks, kCounted) : ranks;
  ranks = ranks == 0 ? ranks_of_sharding(each) : ranks;
  return ranks == 0 && speaks_of_groups(remarks) ? count_named(remarks, kBare) : ranks;
}

// "3 (group size 8)" in the stage's own column.
int ranks_beside_stage(const Measurement& row) {
  constexpr auto kGroups = std::to_array<std::string_view>({"group size", "group"});
  return count_named(with_blanks(row.zero_detail), kGroups);
}

// Copies of the states: groups that data parallelism is over.
int stated_copies(std::string_view remarks) {
  constexpr auto kCopies = std::to_array<std::string_view>(
      {"dp replicate", "data parallel replicate", "replicate degree",
       "num distributed optimizer instances", "dcn data parallelism"});
  constexpr auto kBare = std::to_array<std::string_view>({"replicate"});
  constexpr auto kCounted =
      std::to_array<std::string_view>({"replicas", "way replication", "way replicate",
                                       "shard groups", "fsdp groups", "hsdp groups"});
  int copies = count_named(remarks, kCopies);
  copies = copies == 0 && speaks_of_groups(remarks) ? count_named(remarks, kBare) : copies;
  return copies == 0 && speaks_of_groups(remarks) ? count_before(remarks, kCounted) : copies;
}

// "FSDP=8, DP=32", "FSDP 64 x DP 4": both sizes, of which the product is all ranks. A number behind
// "FSDP" alone is that of a release or of a switch.
int ranks_beside_copies(std::string_view remarks, std::int64_t dp) {
  constexpr auto kShards = std::to_array<std::string_view>({"fsdp", "hsdp"});
  constexpr auto kCopies = std::to_array<std::string_view>({"dp", "ddp"});
  const int shards = count_named(remarks, kShards);
  const int copies = count_named(remarks, kCopies);
  return std::int64_t{shards} * copies == dp ? shards : 0;
}

// "FSDP within a node", "hybrid_shard", "intra-node sharding".
bool stays_in_node(std::string_view clause) {
  constexpr auto kHybrid = std::to_array<std::string_view>({"hsdp", "hybrid shard", "hybridshard"});
  constexpr auto kSharing = std::to_array<std::string_view>({"shard", "fsdp", "zero"});
  constexpr auto kInside = std::to_array<std::string_view>(
      {"in node", "in a node", "in the node", "in each node", "within node", "within a node",
       "within the node", "within each node", "inside node", "inside a node", "inside the node",
       "intra node", "intranode", "shard within"});
  constexpr auto kOthers =  // "dataset shards in node-local storage"
      std::to_array<std::string_view>({"dataset", "checkpoint", "local", "storage"});
  return says_any(clause, kHybrid) ||
         (says_any(clause, kSharing) && says_any(clause, kInside) && !says_any(clause, kOthers));
}

// Data-parallel ranks of one node.
int data_ranks_of_node(const Measurement& row) {
  const std::int64_t gpus = row.gpus_per_node.value_or(0);
  const std::int64_t part = row.tp.value_or(1) * row.cp.value_or(1);
  return static_cast<int>(part > 0 && gpus % part == 0 ? gpus / part : 0);
}

// Ranks that hold the same parameters: those over sequences share states with the data-parallel
// ones.
int with_context(std::int64_t data_ranks, const Measurement& row) {
  return static_cast<int>(data_ranks * row.cp.value_or(1));
}

int ranks_of_node(const Measurement& row) { return with_context(data_ranks_of_node(row), row); }

bool says_inside(const Measurement& row) {
  const std::vector<std::string> clauses = asserted_clauses(groups_text(row));
  return row.zero_stage.value_or(0) > 0 &&
         std::any_of(clauses.begin(), clauses.end(),
                     [](const std::string& clause) { return stays_in_node(clause); });
}

}  // namespace

int state_shards(const Measurement& row) {
  const std::string remarks = groups_text(row);
  const std::int64_t dp = row.dp.value_or(1);
  if (const auto mesh = stated_mesh(asserted(remarks), dp, data_ranks_of_node(row))) {
    return mesh->shards > 0   ? with_context(mesh->shards, row)
           : says_inside(row) ? ranks_of_node(row)
                              : 0;
  }
  // A mesh of torchtitan has an axis of its own for ranks over sequences.
  constexpr auto kOfData = std::to_array<std::string_view>({"dp shard", "data parallel shard"});
  if (const int ranks = stated_ranks(remarks); ranks > 1) {
    return count_named(remarks, kOfData) == ranks ? with_context(ranks, row) : ranks;
  }
  if (const int ranks = ranks_beside_stage(row); ranks > 1) {
    return ranks;
  }
  if (const int copies = stated_copies(remarks); copies > 1 && copies < dp && dp % copies == 0) {
    return with_context(dp / copies, row);
  }
  if (const int ranks = ranks_beside_copies(remarks, dp); ranks > 1) {
    return with_context(ranks, row);
  }
  return says_inside(row) ? ranks_of_node(row) : 0;
}

bool may_share_in_groups(const Measurement& row, std::int64_t ranks) {
  constexpr auto kNames = std::to_array<std::string_view>(
      {"hsdp", "hybrid shard", "hybridshard", "mics", "dp replicate", "data parallel replicate"});
  const std::string remarks = asserted(groups_text(row));
  const int copies = stated_copies(remarks);
  const int shards = stated_ranks(remarks);
  if (const auto mesh = stated_mesh(remarks, ranks, data_ranks_of_node(row))) {
    return mesh->shards > 0;
  }
  return says_any(remarks, kNames) &&
         (copies <= 1 || shards <= 1 || std::int64_t{copies} * shards == ranks);
}

std::vector<std::string> unread_groups(const Measurement& row) {
  constexpr auto kSharing = std::to_array<std::string_view>(
      {"hsdp", "fsdp", "mics", "hpz", "shard", "sharding", "sharded", "zero"});
  constexpr auto kGroups = std::to_array<std::string_view>(
      {"group", "groups", "size", "degree", "partition", "replicas", "replicate", "hpz", "ranks"});
  constexpr std::string_view kDigits = "0123456789";
  const std::string remarks = groups_text(row);
  std::vector<std::string> lines;
  const auto mesh = stated_mesh(asserted(remarks), row.dp.value_or(1), data_ranks_of_node(row));
  if (mesh && mesh->shards == 0) {
    return {fmt::format("\"{}\": groups of ranks as not stated", printable(mesh->remark, 60))};
  }
  if (state_shards(row) > 0 || stated_ranks(remarks) > 0 || stated_copies(remarks) > 0) {
    return lines;
  }
  for (const std::string& clause : asserted_clauses(remarks)) {
    const std::size_t stage = clause.find("zero ");  // whose number counts nothing
    const std::size_t digits = clause.find_first_of(kDigits);
    const bool counts =
        digits != clause.npos && (stage == clause.npos || digits != stage + 5 ||
                                  clause.find_first_of(kDigits, digits + 1) != clause.npos);
    if (counts && has_word(clause, kSharing) && has_word(clause, kGroups)) {
      lines.push_back(
          fmt::format("\"{}\": groups of ranks as not stated", printable(trim(clause), 60)));
    }
  }
  return lines;
}

}  // namespace orrery::studies
