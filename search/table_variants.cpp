// SPDX-License-Identifier: Apache-2.0
#include "search/table_variants.hpp"

namespace orrery::search {

namespace {

using plan::TableGroup;
using plan::TableSharding;

constexpr std::int64_t kNarrowest = 32;  // elements of a slice

bool is_possible(const TableGroup& group, const topologies::Cluster& cluster) {
  const std::int64_t gpus = cluster.node.gpus;
  switch (group.sharding) {
    case TableSharding::Row:
      return group.rows >= cluster.num_gpus();
    case TableSharding::TableRow:
      return cluster.num_nodes > 1 && gpus > 1 && group.rows >= gpus;
    case TableSharding::Column:
      return group.dim % group.slices == 0 && group.dim / group.slices >= kNarrowest;
    default:
      return true;
  }
}

}  // namespace

std::vector<TableGroup> table_variants(const TableGroup& group,
                                       const topologies::Cluster& cluster) {
  if (group.stated) {
    return {group};
  }
  std::vector<TableGroup> all;
  const auto add = [&](TableSharding sharding, int slices) {
    TableGroup variant = group;
    variant.sharding = sharding;
    variant.slices = slices;
    if (is_possible(variant, cluster)) {
      all.push_back(variant);
    }
  };
  add(TableSharding::Table, 1);
  for (int slices = 2; slices <= group.dim / kNarrowest; slices *= 2) {
    add(TableSharding::Column, slices);
  }
  add(TableSharding::Row, 1);
  add(TableSharding::TableRow, 1);
  add(TableSharding::Data, 1);
  return all;
}

}  // namespace orrery::search
