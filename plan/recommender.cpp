// SPDX-License-Identifier: Apache-2.0
#include "plan/recommender.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "costmodel/collective_model.hpp"
#include "costmodel/device_model.hpp"
#include "plan/block_steps.hpp"
#include "plan/stage_memory.hpp"
#include "plan/table_placement.hpp"

namespace orrery::plan {

namespace {

using costmodel::MemoryKernel;
using sim::CommKind;

constexpr double kIndexBytes = 8;
constexpr double kRowState = 4;     // of a row-wise optimizer
constexpr double kDenseBytes = 16;  // of a dense parameter: itself, its gradient, two moments

class Recommendation {
 public:
  explicit Recommendation(const Recommender& network)
      : network_(network),
        device_(network.cluster.gpu, network.profile, costmodel::Load::Sustained),
        collectives_(network.cluster, network.profile),
        mesh_(table_mesh(network.cluster)),
        ranks_(network.cluster.num_gpus()),
        samples_(static_cast<double>(network.batch)),
        width_(static_cast<double>(bytes_per_element(network.precision))) {}

  RecommenderCost run() {
    place();
    for (const TableSharding sharding :
         {TableSharding::Table, TableSharding::Column, TableSharding::Row, TableSharding::TableRow,
          TableSharding::Data}) {
      add_exchanges(sharding);
    }
    dense();
    finish();
    return std::move(cost_);
  }

 private:
  // Work and bytes of one table (or slice) on each rank that holds a part of it; `share` is the
  // part of its lookups that fall to the rank, `kept` that of its rows.
  TableUnit unit_of(std::size_t index, double share, double kept, double samples) const {
    const TableGroup& group = network_.tables[index];
    const double dim = static_cast<double>(group.dim) / group.slices;
    const double lookups = samples * group.pooling * share;
    const double row = dim * network_.table_bytes;
    const double distinct =
        kept * expected_distinct_rows(group.rows, group.slope, samples_ * group.pooling);
    TableUnit unit;
    unit.group = index;
    unit.lookup = device_.memory_bound(
        Bytes(lookups * (kIndexBytes + row) + samples * dim * width_), MemoryKernel::Embedding);
    unit.update = device_.memory_bound(
        Bytes(lookups * (kIndexBytes + dim * width_) + distinct * 2 * (row + kRowState)),
        MemoryKernel::Embedding);
    unit.bytes = kept * static_cast<double>(group.rows) * (row + kRowState);
    unit.width = dim;
    return unit;
  }

  void add_everywhere(const TableUnit& unit, std::int64_t count, std::vector<TableLoad>& loads) {
    for (TableLoad& load : loads) {
      load.lookup += unit.lookup * static_cast<double>(count);
      load.update += unit.update * static_cast<double>(count);
      load.bytes += unit.bytes * static_cast<double>(count);
    }
  }

  void place() {
    const double gpus = network_.cluster.node.gpus;
    std::vector<TableLoad> loads(static_cast<std::size_t>(ranks_));
    std::vector<TableUnit> units;
    for (std::size_t index = 0; index < network_.tables.size(); ++index) {
      const TableGroup& group = network_.tables[index];
      cost_.lookups += samples_ * group.pooling * static_cast<double>(group.count);
      cost_.unique_rows +=
          static_cast<double>(group.count) *
          expected_distinct_rows(group.rows, group.slope, samples_ * group.pooling);
      if (group.sharding == TableSharding::Row) {
        add_everywhere(unit_of(index, 1.0 / ranks_, 1.0 / ranks_, samples_), group.count, loads);
      } else if (group.sharding == TableSharding::Data) {
        add_everywhere(unit_of(index, 1, 1, samples_ / ranks_), group.count, loads);
      } else {
        const bool in_node = group.sharding == TableSharding::TableRow;
        TableUnit unit = unit_of(index, in_node ? 1 / gpus : 1, in_node ? 1 / gpus : 1, samples_);
        unit.whole_node = in_node;
        units.insert(units.end(), static_cast<std::size_t>(group.count * group.slices), unit);
      }
    }
    const double room =
        network_.cluster.gpu.memory.bytes().value() - context_bytes().bytes().value();
    TablePlacement placement =
        place_tables(std::move(units), std::move(loads), network_.tables.size(),
                     network_.cluster.node.gpus, room);
    cost_.ranks = std::move(placement.ranks);
    cost_.fits = placement.fits;
    for (std::size_t index = 0; index < network_.tables.size(); ++index) {
      hold(index, placement.counts[index]);
    }
    counts_ = std::move(placement.counts);
  }

  void hold(std::size_t index, const std::vector<std::int64_t>& counts) {
    const TableGroup& group = network_.tables[index];
    const models::Block block = lookup_block(group);
    const Assignment assignment =
        assign(block, block.operators.front(), lookup_rules(group.sharding));
    const Layout layout = required_input(block.operators.front(), block.tensors[1], 0, assignment);
    RecommenderCost::Held held;
    held.group = group.name;
    const bool everywhere =
        group.sharding == TableSharding::Row || group.sharding == TableSharding::Data;
    held.least = everywhere ? group.count : *std::min_element(counts.begin(), counts.end());
    held.most = everywhere ? group.count : *std::max_element(counts.begin(), counts.end());
    std::int64_t rows = group.rows;
    for (const Axis axis : {Axis::Tensor, Axis::Shard}) {
      const Placement placement = layout[axis];
      if (placement.is_sharded() && placement.var() == Var::Vocab) {
        rows = (rows + mesh_.of(axis) - 1) / mesh_.of(axis);
      }
      if (placement.is_sharded() && mesh_.of(axis) > 1) {
        held.layout +=
            fmt::format("{}{} on {}", held.layout.empty() ? "" : ", ",
                        placement.var() == Var::Vocab ? "rows" : "tables", to_text(axis));
      }
    }
    held.layout = held.layout.empty() ? "replicated" : held.layout;
    held.shape = fmt::format("rows {} x width {}", rows, group.dim / group.slices);
    held.bytes = static_cast<double>(held.most * rows) *
                 (static_cast<double>(group.dim) / group.slices * network_.table_bytes + kRowState);
    cost_.held.push_back(std::move(held));
  }

  // Elements of the fullest rank (or node) over the mean, of the results that a sharding sends.
  double imbalance(TableSharding sharding) const {
    std::vector<double> widths(static_cast<std::size_t>(ranks_), 0);
    for (std::size_t index = 0; index < network_.tables.size(); ++index) {
      const TableGroup& group = network_.tables[index];
      for (std::size_t rank = 0; group.sharding == sharding && rank < widths.size(); ++rank) {
        widths[rank] += static_cast<double>(counts_[index][rank] * group.dim) / group.slices;
      }
    }
    const double sum = std::accumulate(widths.begin(), widths.end(), 0.0);
    return sum > 0 ? *std::max_element(widths.begin(), widths.end()) * ranks_ / sum : 1.0;
  }

  void add_exchanges(TableSharding sharding) {
    std::vector<TableExchange> list;
    for (const TableGroup& group : network_.tables) {
      if (group.sharding == sharding) {
        add_group(group, list);
      }
    }
    for (TableExchange& one : list) {
      const bool travels = one.kind == CommKind::AllToAll;
      one.imbalance = travels ? imbalance(sharding) : 1.0;
      one.time = collectives_.time(one.kind, Bytes(one.bytes * one.imbalance),
                                   group_of(mesh_, one.axes, network_.cluster.node.gpus));
      cost_.exchanges.push_back(std::move(one));
    }
  }

  void add_group(const TableGroup& group, std::vector<TableExchange>& list) const {
    const models::Block block = lookup_block(group);
    const models::Operator& lookup = block.operators.front();
    const Assignment assignment = assign(block, lookup, lookup_rules(group.sharding));
    const Layout needed = required_input(lookup, block.tensors[0], 0, assignment);
    const Layout produced = produced_output(lookup, block.tensors[2], assignment);
    const Extents extents{network_.batch, 1};
    // Only the set entries of the multi-hot matrix travel.
    const double indices = samples_ / ranks_ * static_cast<double>(group.count * group.slices) *
                           group.pooling * kIndexBytes;
    for (const auto& step :
         merged_conversions(block.tensors[0], by_sample(), needed, mesh_, extents)) {
      add({true, "indices", step.kind, step.axes, 1, indices, 1, {}}, list);
    }
    for (const auto& step :
         merged_conversions(block.tensors[2], produced, by_sample(), mesh_, extents)) {
      add({true,
           "pooled rows",
           step.kind,
           step.axes,
           1,
           static_cast<double>(step.elements) * width_,
           1,
           {}},
          list);
    }
    for (const auto& step :
         merged_conversions(block.tensors[2], by_sample(), gradient_of(produced), mesh_, extents)) {
      add({false,
           "gradients of pooled rows",
           step.kind,
           step.axes,
           1,
           static_cast<double>(step.elements) * width_,
           1,
           {}},
          list);
    }
    const Layout gradient = produced_gradient(lookup, block.tensors[1], 0, assignment);
    for (const auto& step :
         merged_conversions(block.tensors[1], gradient, gradient_of(gradient), mesh_, extents)) {
      add({false,
           "table gradients",
           step.kind,
           step.axes,
           1,
           static_cast<double>(step.elements) * network_.table_bytes,
           1,
           {}},
          list);
    }
  }

  // Tables of one sharding are exchanged together.
  void add(TableExchange one, std::vector<TableExchange>& list) const {
    for (const Axis axis : one.axes) {
      one.ranks *= mesh_.of(axis);
    }
    const auto same = std::find_if(list.begin(), list.end(), [&](const TableExchange& known) {
      return known.of == one.of && known.kind == one.kind && known.axes == one.axes;
    });
    if (same == list.end()) {
      list.push_back(std::move(one));
    } else {
      same->bytes += one.bytes;
    }
  }

  // One product of the samples of a rank, forward and both of its gradients.
  void product(double in, double out) {
    const auto rows = static_cast<std::int64_t>(samples_ / ranks_);
    const auto k = static_cast<std::int64_t>(in);
    const auto n = static_cast<std::int64_t>(out);
    const auto gemm = [&](std::int64_t m, std::int64_t columns, std::int64_t depth) {
      return device_.gemm({.m = m,
                           .n = columns,
                           .k = depth,
                           .dtype = network_.precision,
                           .output_bytes = static_cast<int>(width_)});
    };
    cost_.dense_forward += gemm(rows, n, k);
    cost_.dense_backward += gemm(rows, k, n) + gemm(k, n, rows);
    cost_.dense_parameters += in * out + out;
    activations_ += in;
  }

  void dense() {
    double width = static_cast<double>(network_.features);
    for (const std::int64_t layer : network_.bottom) {
      product(width, static_cast<double>(layer));
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
                                          .output_bytes = static_cast<int>(width_),
                                          .batched = true});
      cost_.dense_forward += pairs;
      cost_.dense_backward += pairs * 2.0;
      width += features * (features - 1) / 2;
    } else {
      width = joined;
    }
    for (const std::int64_t layer : network_.top) {
      product(width, static_cast<double>(layer));
      width = static_cast<double>(layer);
    }
    cost_.dense_bytes =
        cost_.dense_parameters * kDenseBytes + samples_ / ranks_ * activations_ * width_;
    std::vector<Axis> all;
    for (const Axis axis : {Axis::Tensor, Axis::Shard}) {
      if (mesh_.of(axis) > 1) {
        all.push_back(axis);
      }
    }
    if (!all.empty()) {
      cost_.dense_reduction =
          collectives_.time(CommKind::AllReduce, Bytes(4 * cost_.dense_parameters),
                            group_of(mesh_, all, network_.cluster.node.gpus));
    }
  }

  void finish() {
    for (const TableLoad& load : cost_.ranks) {
      cost_.lookup = std::max(cost_.lookup, load.lookup);
      cost_.update = std::max(cost_.update, load.update);
      cost_.fullest_bytes = std::max(cost_.fullest_bytes, load.bytes);
    }
    for (const TableExchange& one : cost_.exchanges) {
      (one.of == "indices" ? cost_.exchange_indices
       : one.forward       ? cost_.exchange_forward
                           : cost_.exchange_backward) += one.time;
    }
    cost_.fullest_bytes += cost_.dense_bytes + context_bytes().bytes().value();
    cost_.fits = cost_.fits && cost_.fullest_bytes <= network_.cluster.gpu.memory.bytes().value();
    const Seconds exposed = std::max(Seconds(), cost_.dense_reduction - cost_.dense_backward);
    cost_.pipelined = cost_.lookup + cost_.exchange_forward + cost_.dense_forward +
                      cost_.dense_backward + exposed + cost_.exchange_backward + cost_.update;
    cost_.step = cost_.pipelined + cost_.exchange_indices;
    cost_.pipelined = std::max(cost_.pipelined, cost_.exchange_indices);
  }

  const Recommender& network_;
  costmodel::DeviceModel device_;
  costmodel::CollectiveModel collectives_;
  Mesh mesh_;
  int ranks_;
  double samples_;
  double width_;
  double activations_ = 0;                         // elements of a sample that the backward needs
  std::vector<std::vector<std::int64_t>> counts_;  // tables or slices, by group and rank
  RecommenderCost cost_;
};

}  // namespace

RecommenderCost simulate_recommender(const Recommender& network) {
  return Recommendation(network).run();
}

}  // namespace orrery::plan
