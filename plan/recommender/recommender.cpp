// SPDX-License-Identifier: Apache-2.0
#include "plan/recommender/recommender.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "plan/block/steps.hpp"
#include "plan/recommender/model.hpp"
#include "plan/recommender/pipeline.hpp"
#include "plan/simulation/interval.hpp"
#include "plan/stage/memory.hpp"

namespace orrery::plan {

namespace {

using sim::CommKind;

constexpr int kRecommenderDraws = 128;
constexpr std::array kShardings = {TableSharding::Table, TableSharding::Column, TableSharding::Row,
                                   TableSharding::TableRow, TableSharding::Data};

class Recommendation {
 public:
  Recommendation(const RecommenderModel& model, const std::vector<TableGroup>& tables,
                 const std::vector<TableShare>& shares)
      : model_(model),
        network_(model.network()),
        tables_(tables),
        shares_(shares),
        ranks_(network_.cluster.num_gpus()) {}

  RecommenderCost run() {
    place();
    for (const TableSharding sharding : kShardings) {
      add_exchanges(sharding);
    }
    finish();
    return std::move(cost_);
  }

 private:
  void place() {
    std::vector<TableLoad> loads(static_cast<std::size_t>(ranks_));
    std::vector<TableUnit> units;
    for (std::size_t index = 0; index < tables_.size(); ++index) {
      const TableShare& share = shares_[index];
      TableUnit unit = share.unit;
      unit.group = index;
      cost_.lookups += static_cast<double>(network_.batch) * tables_[index].pooling *
                       static_cast<double>(tables_[index].count);
      cost_.unique_rows += share.distinct_rows;
      if (share.everywhere) {
        for (TableLoad& load : loads) {
          load.lookup += unit.lookup * static_cast<double>(share.units);
          load.update += unit.update * static_cast<double>(share.units);
          load.bytes += unit.bytes * static_cast<double>(share.units);
          load.buffers += unit.buffers * static_cast<double>(share.units);
        }
      } else {
        units.insert(units.end(), static_cast<std::size_t>(share.units), unit);
      }
    }
    TablePlacement placement =
        place_tables(std::move(units), std::move(loads), tables_.size(), network_.cluster.node.gpus,
                     model_.room() - model_.dense().bytes);
    cost_.ranks = std::move(placement.ranks);
    cost_.fits = placement.fits;
    counts_ = std::move(placement.counts);
  }

  // Of the fullest rank (or node) over the mean: the indices that a sharding's tables receive, a
  // pooling's each, or the elements of their results, a width each.
  double imbalance(TableSharding sharding, bool indices) const {
    std::vector<double> sent(static_cast<std::size_t>(ranks_), 0);
    for (std::size_t index = 0; index < tables_.size(); ++index) {
      const TableGroup& group = tables_[index];
      const double each = indices ? group.pooling : static_cast<double>(group.dim) / group.slices;
      for (std::size_t rank = 0; group.sharding == sharding && rank < sent.size(); ++rank) {
        sent[rank] += static_cast<double>(counts_[index][rank]) * each;
      }
    }
    const double sum = std::accumulate(sent.begin(), sent.end(), 0.0);
    return sum > 0 ? *std::max_element(sent.begin(), sent.end()) * ranks_ / sum : 1.0;
  }

  void add_exchanges(TableSharding sharding) {
    std::vector<TableExchange> list;
    for (std::size_t index = 0; index < tables_.size(); ++index) {
      if (tables_[index].sharding == sharding) {
        for (const TableExchange& one : shares_[index].exchanges) {
          add(one, list);
        }
      }
    }
    for (TableExchange& one : list) {
      // Nodes that hold more of the tables than others also reduce and gather more of their rows.
      const bool travels = one.kind == CommKind::AllToAll || sharding == TableSharding::TableRow;
      one.imbalance = travels ? imbalance(sharding, one.of == "indices") : 1.0;
      one.time = model_.exchange_time(one, one.bytes * one.imbalance);
      cost_.exchanges.push_back(std::move(one));
    }
  }

  // Tables of one sharding are exchanged together.
  static void add(const TableExchange& one, std::vector<TableExchange>& list) {
    const auto same = std::find_if(list.begin(), list.end(), [&](const TableExchange& known) {
      return known.of == one.of && known.kind == one.kind && known.axes == one.axes;
    });
    if (same == list.end()) {
      list.push_back(one);
    } else {
      same->bytes += one.bytes;
    }
  }

  void finish() {
    for (const TableLoad& load : cost_.ranks) {
      cost_.lookup = std::max(cost_.lookup, load.lookup);
      cost_.update = std::max(cost_.update, load.update);
      if (load.bytes + load.buffers > cost_.table_bytes + cost_.buffer_bytes) {
        cost_.table_bytes = load.bytes;
        cost_.buffer_bytes = load.buffers;
      }
    }
    for (const TableExchange& one : cost_.exchanges) {
      (one.of == "indices" ? cost_.exchange_indices
       : one.forward       ? cost_.exchange_forward
                           : cost_.exchange_backward) += one.time;
    }
    const DenseCost& dense = model_.dense();
    cost_.dense_parameters = dense.parameters;
    cost_.dense_flops = dense.flops;
    cost_.dense_bytes = dense.bytes;
    cost_.dense_forward = dense.forward;
    cost_.dense_backward = dense.backward;
    cost_.dense_reduction = dense.reduction;
    cost_.fullest_bytes =
        cost_.table_bytes + cost_.buffer_bytes + cost_.dense_bytes + context_bytes().bytes();
    cost_.fits = cost_.fits && cost_.fullest_bytes <= network_.cluster.gpu.memory.bytes();
    cost_.pipelined = cost_.lookup + cost_.exchange_forward + dense.time() +
                      cost_.exchange_backward + cost_.update;
    cost_.step = cost_.pipelined + cost_.exchange_indices;
    cost_.pipelined = std::max(cost_.pipelined, cost_.exchange_indices);
    cost_.counts = std::move(counts_);
  }

  const RecommenderModel& model_;
  const Recommender& network_;
  const std::vector<TableGroup>& tables_;
  const std::vector<TableShare>& shares_;
  int ranks_;
  std::vector<std::vector<std::int64_t>> counts_;  // tables or slices, by group and rank
  RecommenderCost cost_;
};

RecommenderCost::Held held_of(const Recommender& network, const TableGroup& group, const Mesh& mesh,
                              const std::vector<std::int64_t>& counts) {
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
      rows = (rows + mesh.of(axis) - 1) / mesh.of(axis);
    }
    if (placement.is_sharded() && mesh.of(axis) > 1) {
      held.layout += fmt::format("{}{} on {}", held.layout.empty() ? "" : ", ",
                                 placement.var() == Var::Vocab ? "rows" : "tables", to_text(axis));
    }
  }
  held.layout = held.layout.empty() ? "replicated" : held.layout;
  held.shape = fmt::format("rows {} x width {}", rows, group.dim / group.slices);
  held.bytes =
      static_cast<double>(held.most * rows) *
      (Bytes(static_cast<double>(group.dim) / group.slices * network.table_bytes) + kRowState);
  return held;
}

Seconds scaled_step(const RecommenderCost& cost, const Recommender& network,
                    const CostFactors& factors) {
  const auto kernels = [&](CostClass kind, Seconds time) { return factors.scaled(kind, time); };
  const auto moved = [&](Seconds time) {
    return kernels(network.cluster.num_nodes > 1 ? CostClass::InterNode : CostClass::IntraNode,
                   time);
  };
  const Seconds backward = kernels(CostClass::Gemm, cost.dense_backward);
  return kernels(CostClass::MemoryBound, cost.lookup) +
         kernels(CostClass::MemoryBound, cost.update) + moved(cost.exchange_indices) +
         moved(cost.exchange_forward) + moved(cost.exchange_backward) +
         kernels(CostClass::Gemm, cost.dense_forward) +
         std::max(backward, moved(cost.dense_reduction));
}

}  // namespace

RecommenderCost cost_of(const RecommenderModel& model, const std::vector<TableGroup>& tables,
                        const std::vector<TableShare>& shares) {
  return Recommendation(model, tables, shares).run();
}

RecommenderCost simulate_recommender(const Recommender& network) {
  RecommenderModel model(network);
  std::vector<TableShare> shares;
  for (const TableGroup& group : network.tables) {
    shares.push_back(model.share(group));
  }
  RecommenderCost cost = cost_of(model, network.tables, shares);
  for (std::size_t index = 0; index < network.tables.size(); ++index) {
    cost.held.push_back(held_of(network, network.tables[index], model.mesh(), cost.counts[index]));
  }
  const TimeInterval interval = *sampled_interval(
      network.profile.spread, cost.step, kRecommenderDraws,
      [&](const CostFactors& factors) { return scaled_step(cost, network, factors); });
  cost.step_low = interval.low;
  cost.step_high = interval.high;
  if (network.nested) {
    add_nested(network, cost);
  }
  return cost;
}

}  // namespace orrery::plan
