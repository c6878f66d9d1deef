// SPDX-License-Identifier: Apache-2.0
// Which rank holds which embedding table: longest processing time first, on the rank (for tables
// cut by rows inside a node: the node) with the least work that has room for it.
#pragma once

#include <vector>

#include "plan/recommender/recommender.hpp"

namespace orrery::plan {

// What one rank that holds a table, a slice or its rows reads, updates and keeps.
struct TableUnit {
  std::size_t group = 0;
  Seconds lookup;
  Seconds update;
  Bytes bytes;
  Bytes buffers;     // beside the table (TableLoad)
  double width = 0;  // elements that a sample's result has
  bool whole_node = false;
};

struct TablePlacement {
  std::vector<TableLoad> ranks;
  std::vector<std::vector<std::int64_t>> counts;  // by group, by rank
  bool fits = true;
};
// Ranks start with `loads`; `room` each.
TablePlacement place_tables(std::vector<TableUnit> units, std::vector<TableLoad> loads,
                            std::size_t groups, int gpus_per_node, Bytes room);

// Expected distinct rows of `draws` lookups: sum over rows of 1 - (1 - q)^draws, q by Zipf's law,
// over rows in bins that widen by a hundredth, so that it takes as long for a billion rows.
double expected_distinct_rows(std::int64_t rows, double slope, double draws);

}  // namespace orrery::plan
