// SPDX-License-Identifier: Apache-2.0
// Searches how the embedding tables of a recommendation network are sharded: for every group of
// tables by table, column (2, 4, ... slices of at least 32 elements), row, row inside a node, or a
// copy on every rank; tables whose document states a sharding keep it. Branch and bound over the
// groups, those with most work first. A bound of a partial choice adds up what no completion can
// avoid: the dense network, the mean work of a rank, of the exchanges of each sharding either their
// time with the tables chosen so far or their bytes at the best rate, and mean bytes against
// memory; it rests on collective times being monotone in bytes (a tested property). So the result
// carries a certificate. Equal groups are told apart by order alone. Of nested pipelines the bound
// is a cycle of their passes (search/step_waits.hpp). Deterministic.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "plan/recommender/recommender.hpp"

namespace orrery::search {

struct TableSearch {
  std::size_t top = 5;
  double gap_fraction = 0;
  Seconds time_limit;                   // 0: none
  std::int64_t most_steps = 2'000'000;  // partial choices looked at before it ends early
  std::function<bool()> stop;
};

struct TableFound {
  plan::Recommender network;
  plan::RecommenderCost cost;
};

struct TableOutcome {
  std::vector<TableFound> found;  // best first
  double plans = 0;               // of the space; those of equal groups in one order
  double pruned = 0;              // by the bound or for memory, without being evaluated
  double unexplored = 0;          // not reached before an early end
  std::int64_t infeasible = 0;    // evaluated: do not fit
  std::int64_t simulated = 0;
  Seconds lower_bound;
  double gap_fraction = 0;  // exactly 0 when closed
  bool interrupted = false;
  bool timed_out = false;  // or out of steps
  Seconds search_time;
  std::string closest;  // nothing fits: what the least full plan misses
};

// With the network's schedule, if it has one, and its number of micro-batches.
TableOutcome search_tables(const plan::Recommender& network, const TableSearch& search);

}  // namespace orrery::search
