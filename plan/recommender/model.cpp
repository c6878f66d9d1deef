// SPDX-License-Identifier: Apache-2.0
#include "plan/recommender/model.hpp"

#include <algorithm>
#include <tuple>

#include "plan/block/steps.hpp"
#include "plan/stage/memory.hpp"

namespace orrery::plan {

namespace {

using costmodel::MemoryKernel;
using sim::CommKind;

constexpr Bytes kDenseParameter(16);  // itself, its gradient, two moments
constexpr double kGradientBytes = 4;
// A sample's: a multiplication and an addition in the forward pass and for each of two gradients.
constexpr double kFlopsPerWeight = 6;

}  // namespace

RecommenderModel::RecommenderModel(const Recommender& network)
    : network_(network),
      device_(network.cluster.gpu, network.profile, costmodel::Load::Sustained),
      collectives_(network.cluster, network.profile),
      mesh_(table_mesh(network.cluster)),
      ranks_(network.cluster.num_gpus()),
      samples_(static_cast<double>(network.batch)),
      width_(bytes_per_element(unquantised(network.precision))) {
  add_dense();
}

Bytes RecommenderModel::room() const {
  return network_.cluster.gpu.memory.bytes() - context_bytes().bytes();
}

double RecommenderModel::distinct_rows(const TableGroup& group) {
  const double draws = samples_ * group.pooling;
  const auto [known, is_new] = distinct_.try_emplace({group.rows, {group.slope, draws}}, 0.0);
  if (is_new) {
    known->second = expected_distinct_rows(group.rows, group.slope, draws);
  }
  return known->second;
}

// Work and bytes of one table (or slice) on each rank that holds a part of it; `share` is the
// part of its lookups that fall to the rank, `kept` that of its rows.
TableUnit RecommenderModel::unit_of(const TableGroup& group, double share, double kept,
                                    double samples) {
  const double dim = static_cast<double>(group.dim) / group.slices;
  const double lookups = samples * group.pooling * share;
  const Bytes row(dim * network_.table_bytes);
  // Copies everywhere have a dense gradient, which is zeroed, summed and applied to every row.
  const bool dense = group.sharding == TableSharding::Data;
  const double rows = kept * static_cast<double>(group.rows);
  const double updated = dense ? rows : kept * distinct_rows(group);
  TableUnit unit;
  unit.lookup = device_.memory_bound(lookups * (kIndex + row) + samples * dim * width_,
                                     MemoryKernel::Embedding);
  unit.update =
      device_.memory_bound(lookups * (kIndex + dim * width_) + updated * 2 * (row + kRowState) +
                               (dense ? 2 * rows * row : Bytes()),
                           MemoryKernel::Embedding);
  unit.bytes = rows * (row + kRowState);
  unit.buffers = dense ? rows * row : lookups * kIndex + samples * dim * width_;
  unit.width = dim;
  return unit;
}

TableShare RecommenderModel::share(const TableGroup& group) {
  const double gpus = network_.cluster.node.gpus;
  const double ranks = ranks_;
  TableShare share;
  switch (group.sharding) {
    case TableSharding::Row:
      share.unit = unit_of(group, 1 / ranks, 1 / ranks, samples_);
      share.everywhere = true;
      break;
    case TableSharding::Data:
      share.unit = unit_of(group, 1, 1, samples_ / ranks);
      share.everywhere = true;
      break;
    case TableSharding::TableRow:
      share.unit = unit_of(group, 1 / gpus, 1 / gpus, samples_);
      share.unit.whole_node = true;
      break;
    case TableSharding::Table:
    case TableSharding::Column:
      share.unit = unit_of(group, 1, 1, samples_);
      break;
  }
  share.units = group.count * group.slices;
  share.distinct_rows = static_cast<double>(group.count) * distinct_rows(group);
  share.exchanges = exchanges_of(group);
  const double on_ranks = share.everywhere ? ranks : share.unit.whole_node ? gpus : 1;
  const double mean = static_cast<double>(share.units) * on_ranks / ranks;
  share.mean_lookup = share.unit.lookup * mean;
  share.mean_update = share.unit.update * mean;
  share.mean_bytes = (share.unit.bytes + share.unit.buffers) * mean;
  return share;
}

Seconds RecommenderModel::exchange_time(const TableExchange& exchange, Bytes bytes) const {
  return collectives_.time(exchange.kind, bytes,
                           group_of(mesh_, exchange.axes, network_.cluster.node.gpus));
}

// Tables that ranks cannot share out evenly: exchanges are those of as many as would be even, and
// the mean rank has this part of them; the placement says how far the fullest one is above it.
double RecommenderModel::pad_tables(models::Block& block, TableSharding sharding) const {
  const std::int64_t parts = sharding == TableSharding::TableRow ? network_.cluster.num_nodes
                             : sharding == TableSharding::Table || sharding == TableSharding::Column
                                 ? ranks_
                                 : 1;
  double mean = 1;
  for (models::Tensor& tensor : block.tensors) {
    for (models::Dim& dim : tensor.dims) {
      if (dim.var == Var::Table) {
        const std::int64_t even = (dim.extent + parts - 1) / parts * parts;
        mean = static_cast<double>(dim.extent) / static_cast<double>(even);
        dim.extent = even;
      }
    }
  }
  return mean;
}

std::vector<TableExchange> RecommenderModel::exchanges_of(const TableGroup& group) const {
  std::vector<TableExchange> list;
  const auto add = [&](TableExchange one) {
    for (const Axis axis : one.axes) {
      one.ranks *= mesh_.of(axis);
    }
    list.push_back(std::move(one));
  };
  models::Block block = lookup_block(group);
  const double mean = pad_tables(block, group.sharding);
  const models::Operator& lookup = block.operators.front();
  const Assignment assignment = assign(block, lookup, lookup_rules(group.sharding));
  const Layout needed = required_input(lookup, block.tensors[0], 0, assignment);
  const Layout produced = produced_output(lookup, block.tensors[2], assignment);
  const Extents extents{network_.batch, 1};
  // Only the set entries of the multi-hot matrix travel.
  const Bytes indices =
      samples_ / ranks_ * static_cast<double>(group.count * group.slices) * group.pooling * kIndex;
  for (const auto& step :
       merged_conversions(block.tensors[0], by_sample(), needed, mesh_, extents)) {
    add({true, "indices", step.kind, step.axes, 1, indices, 1, {}});
  }
  for (const auto& step :
       merged_conversions(block.tensors[2], produced, by_sample(), mesh_, extents)) {
    add({true,
         "pooled rows",
         step.kind,
         step.axes,
         1,
         static_cast<double>(step.elements) * width_ * mean,
         1,
         {}});
  }
  for (const auto& step :
       merged_conversions(block.tensors[2], by_sample(), gradient_of(produced), mesh_, extents)) {
    add({false,
         "gradients of pooled rows",
         step.kind,
         step.axes,
         1,
         static_cast<double>(step.elements) * width_ * mean,
         1,
         {}});
  }
  const Layout gradient = produced_gradient(lookup, block.tensors[1], 0, assignment);
  for (const auto& step :
       merged_conversions(block.tensors[1], gradient, gradient_of(gradient), mesh_, extents)) {
    add({false,
         "table gradients",
         step.kind,
         step.axes,
         1,
         Bytes(static_cast<double>(step.elements) * network_.table_bytes),
         1,
         {}});
  }
  return list;
}

// One product of the samples of a rank, forward and both of its gradients.
void RecommenderModel::add_product(double in, double out) {
  const auto rows = static_cast<std::int64_t>(samples_ / ranks_);
  const auto k = static_cast<std::int64_t>(in);
  const auto n = static_cast<std::int64_t>(out);
  const auto gemm = [&](std::int64_t m, std::int64_t columns, std::int64_t depth) {
    return device_.gemm({.m = m,
                         .n = columns,
                         .k = depth,
                         .dtype = network_.precision,
                         .output_bytes = static_cast<int>(width_.value())});
  };
  dense_.forward += gemm(rows, n, k);
  dense_.backward += gemm(rows, k, n) + gemm(k, n, rows);
  dense_.parameters += in * out + out;
  dense_.flops += kFlopsPerWeight * samples_ * in * out;
  activations_ += in;
}

void RecommenderModel::add_dense() {
  double width = static_cast<double>(network_.features);
  for (const std::int64_t layer : network_.bottom) {
    add_product(width, static_cast<double>(layer));
    width = static_cast<double>(layer);
  }
  double features = 1;
  double joined = width;
  for (const TableGroup& group : network_.tables) {
    features += static_cast<double>(group.count);
    joined += static_cast<double>(group.count * group.dim);
  }
  activations_ += joined;
  if (network_.dot) {
    const auto count = static_cast<std::int64_t>(features);
    const auto rows = static_cast<std::int64_t>(samples_ / ranks_);
    const Seconds pairs = device_.gemm({.m = count,
                                        .n = count,
                                        .k = static_cast<std::int64_t>(width),
                                        .groups = rows,
                                        .dtype = network_.precision,
                                        .output_bytes = static_cast<int>(width_.value()),
                                        .batched = true});
    dense_.forward += pairs;
    dense_.backward += pairs * 2.0;
    dense_.flops += kFlopsPerWeight * samples_ * features * features * width;
    width += features * (features - 1) / 2;
  } else {
    width = joined;
  }
  for (const std::int64_t layer : network_.top) {
    add_product(width, static_cast<double>(layer));
    width = static_cast<double>(layer);
  }
  dense_.bytes = dense_.parameters * kDenseParameter + samples_ / ranks_ * activations_ * width_;
  std::vector<Axis> all;
  for (const Axis axis : {Axis::Tensor, Axis::Shard}) {
    if (mesh_.of(axis) > 1) {
      all.push_back(axis);
    }
  }
  if (!all.empty()) {
    dense_.reduction =
        collectives_.time(CommKind::AllReduce, Bytes(kGradientBytes * dense_.parameters),
                          group_of(mesh_, all, network_.cluster.node.gpus));
  }
}

}  // namespace orrery::plan
