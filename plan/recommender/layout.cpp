// SPDX-License-Identifier: Apache-2.0
// The lookups of a recommendation network as an operator, and the shardings of its tables as lists
// of variables: nothing else distinguishes them.
#include "plan/recommender/recommender.hpp"

namespace orrery::plan {

using models::Dim;
using models::Element;
using models::kFromWorkload;
using models::Operator;
using models::TensorKind;

Mesh table_mesh(const topologies::Cluster& cluster) {
  Mesh mesh;
  mesh.size[static_cast<std::size_t>(Axis::Tensor)] = cluster.node.gpus;
  mesh.size[static_cast<std::size_t>(Axis::Shard)] = cluster.num_nodes;
  return mesh;
}

models::Block lookup_block(const TableGroup& group) {
  const Dim batch{Var::Batch, kFromWorkload};
  const Dim tables{Var::Table, group.count * group.slices};
  const Dim rows{Var::Vocab, group.rows};
  const Dim width{Var::Hidden, group.dim / group.slices};
  models::Block block;
  block.name = group.name;
  block.kind = models::BlockKind::Embedding;
  block.tensors = {{.name = "indices", .element = Element::Int64, .dims = {batch, tables, rows}},
                   {.name = "table",
                    .kind = TensorKind::Weight,
                    .element = Element::Fp32,
                    .dims = {tables, rows, width}},
                   {.name = "pooled", .dims = {batch, tables, width}}};
  Operator lookup{.name = "lookup",
                  .kind = models::OpKind::Embedding,
                  .inputs = {0},
                  .weights = {1},
                  .outputs = {2},
                  .reduced = {Var::Vocab}};
  lookup.flops_per_point = 1;
  block.operators = {std::move(lookup)};
  block.output = 2;
  return block;
}

AxisRules lookup_rules(TableSharding sharding) {
  AxisRules rules;
  std::vector<Var>& inside = rules.preference[static_cast<std::size_t>(Axis::Tensor)];
  std::vector<Var>& across = rules.preference[static_cast<std::size_t>(Axis::Shard)];
  switch (sharding) {
    case TableSharding::Table:
    case TableSharding::Column:  // slices are tables
      inside = across = {Var::Table};
      break;
    case TableSharding::Row:
      inside = across = {Var::Vocab};
      break;
    case TableSharding::TableRow:
      inside = {Var::Vocab};
      across = {Var::Table};
      break;
    case TableSharding::Data:
      inside = across = {Var::Batch};
      break;
  }
  return rules;
}

Layout by_sample() {
  Layout layout;
  layout.set(Axis::Tensor, Placement::sharded(Var::Batch));
  layout.set(Axis::Shard, Placement::sharded(Var::Batch));
  return layout;
}

}  // namespace orrery::plan
