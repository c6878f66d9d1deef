// SPDX-License-Identifier: Apache-2.0
// The exchange that the rules derive for every sharding of embedding tables, executed on tiny
// tensors: lookups and gradients of tables equal those of one rank, and no reduction can be left
// out.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "plan/recommender/recommender.hpp"
#include "tests/unit/plan/semantics/rank_tensor.hpp"

namespace orrery::plan {
namespace {

using sim::CommKind;

constexpr TableSharding kAll[] = {TableSharding::Table, TableSharding::Column, TableSharding::Row,
                                  TableSharding::TableRow, TableSharding::Data};

namespace tiny = semantics;

constexpr int kTables = 4;
constexpr int kRows = 8;
constexpr int kWidth = 4;
constexpr int kSamples = 8;

tiny::Indices range(int count) {
  tiny::Indices indices(static_cast<std::size_t>(count));
  std::iota(indices.begin(), indices.end(), 0);
  return indices;
}

tiny::Part drawn(std::vector<Var> vars, std::vector<int> sizes, int seed) {
  std::vector<tiny::Indices> index;
  for (const int size : sizes) {
    index.push_back(range(size));
  }
  tiny::Part part = tiny::part_of(std::move(vars), std::move(index));
  for (Eigen::Index at = 0; at < part.size(); ++at) {
    part.data[at] = std::sin(static_cast<double>(at * 7 + seed));
  }
  return part;
}

// Counts of how often a sample looks a row up, none of most.
tiny::Part multi_hot() {
  tiny::Part part = drawn({Var::Batch, Var::Table, Var::Vocab}, {kSamples, kTables, kRows}, 1);
  part.data = (part.data > 0.4).select(Eigen::ArrayXd::Ones(part.size()), 0.0);
  return part;
}

struct TableResult {
  tiny::Spread pooled;
  tiny::Spread gradient;  // of the table
};

class TableExecution {
 public:
  TableExecution(TableSharding sharding, const Mesh& mesh, int skip = -1)
      : mesh_(mesh), skip_(skip), collectives_(mesh, {}) {
    TableGroup group;
    group.name = "t";
    group.count = kTables;
    group.rows = kRows;
    group.dim = kWidth;
    group.sharding = sharding;
    block_ = lookup_block(group);
    assignment_ = assign(block_, lookup(), lookup_rules(sharding));
  }

  TableResult run() {
    TableResult result;
    const Layout needed = required_input(lookup(), block_.tensors[0], 0, assignment_);
    const Layout stored = required_input(lookup(), block_.tensors[1], 0, assignment_);
    const Layout produced = produced_output(lookup(), block_.tensors[2], assignment_);
    tiny::Spread x = collectives_.distribute(multi_hot(), by_sample());
    convert(x, by_sample(), needed);
    const tiny::Spread w = collectives_.distribute(
        drawn({Var::Table, Var::Vocab, Var::Hidden}, {kTables, kRows, kWidth}, 2), stored);
    for (std::size_t rank = 0; rank < x.size(); ++rank) {
      result.pooled.push_back(product(x[rank], w[rank]));
    }
    convert(result.pooled, produced, by_sample());
    tiny::Spread dy = collectives_.distribute(
        drawn({Var::Batch, Var::Table, Var::Hidden}, {kSamples, kTables, kWidth}, 3), by_sample());
    convert(dy, by_sample(), gradient_of(produced));
    for (std::size_t rank = 0; rank < x.size(); ++rank) {
      result.gradient.push_back(weight_gradient(x[rank], dy[rank], w[rank]));
    }
    const Layout partial = produced_gradient(lookup(), block_.tensors[1], 0, assignment_);
    convert(result.gradient, partial, gradient_of(partial));
    return result;
  }

  int steps() const { return step_; }

 private:
  const models::Operator& lookup() const { return block_.operators.front(); }

  void convert(tiny::Spread& spread, const Layout& from, const Layout& to) {
    collectives_.slice_new(spread, from, to);
    for (const Conversion& step : conversions(from, to)) {
      if (mesh_.of(step.axis) == 1) {
        continue;
      }
      const bool sums = step.kind == CommKind::AllReduce || step.kind == CommKind::ReduceScatter;
      if (sums && step_++ != skip_) {
        collectives_.reduce(spread, step.axis);
      }
      if (step.kind == CommKind::AllGather || step.kind == CommKind::AllToAll) {
        collectives_.gather(spread, step.axis, from[step.axis].var());
      }
      if (step.kind == CommKind::AllToAll || step.kind == CommKind::ReduceScatter) {
        keep_own(spread, step.axis, to);
      }
    }
  }

  // Of what a rank holds, the part that is its own on the axis: ranks of several axes on one
  // variable share it out with the outermost first, in whichever order the exchanges come.
  void keep_own(tiny::Spread& spread, Axis axis, const Layout& to) const {
    const Var var = to[axis].var();
    const int extent = var == Var::Batch ? kSamples : var == Var::Table ? kTables : kRows;
    int parts = 1;
    int inner = 1;
    for (const Axis other : kAxes) {
      if (to[other].is_sharded() && to[other].var() == var) {
        inner *= other < axis ? mesh_.of(other) : 1;
        parts *= mesh_.of(other);
      }
    }
    for (std::size_t rank = 0; rank < spread.size(); ++rank) {
      const tiny::Part before = spread[rank];
      tiny::Part& part = spread[rank];
      const int mine = collectives_.place(static_cast<int>(rank), axis);
      std::erase_if(part.index[static_cast<std::size_t>(part.dim_of(var))], [&](int index) {
        return index * parts / extent / inner % mesh_.of(axis) != mine;
      });
      part.data = Eigen::ArrayXd::Zero(part.size());
      const tiny::Reader reader(before);
      tiny::for_each(part, [&](Eigen::Index at, const std::vector<int>& global) {
        part.data[at] = reader.at(global);
      });
    }
  }

  static tiny::Part product(const tiny::Part& x, const tiny::Part& w) {
    tiny::Part y =
        tiny::part_of({Var::Batch, Var::Table, Var::Hidden}, {x.index[0], x.index[1], w.index[2]});
    const tiny::Reader counts(x);
    const tiny::Reader rows(w);
    tiny::for_each(y, [&](Eigen::Index at, const std::vector<int>& g) {
      for (const int row : w.index[1]) {
        y.data[at] += counts.at({g[0], g[1], row}) * rows.at({g[1], row, g[2]});
      }
    });
    return y;
  }

  static tiny::Part weight_gradient(const tiny::Part& x, const tiny::Part& dy,
                                    const tiny::Part& w) {
    tiny::Part dw = tiny::part_of(w.vars, w.index);
    const tiny::Reader counts(x);
    const tiny::Reader gradients(dy);
    tiny::for_each(dw, [&](Eigen::Index at, const std::vector<int>& g) {
      for (const int sample : x.index[0]) {
        dw.data[at] += counts.at({sample, g[0], g[1]}) * gradients.at({sample, g[0], g[2]});
      }
    });
    return dw;
  }

  Mesh mesh_;
  int skip_;
  int step_ = 0;
  tiny::Collectives collectives_;
  models::Block block_;
  Assignment assignment_;
};

double distance(const tiny::Spread& spread, const tiny::Part& serial) {
  const tiny::Reader reader(serial);
  double most = 0;
  for (const tiny::Part& part : spread) {
    tiny::for_each(part, [&](Eigen::Index at, const std::vector<int>& global) {
      most = std::max(most, std::abs(part.data[at] - reader.at(global)));
    });
  }
  return most;
}

Mesh tiny_mesh(int inside, int across) {
  Mesh mesh;
  mesh.size[static_cast<std::size_t>(Axis::Tensor)] = inside;
  mesh.size[static_cast<std::size_t>(Axis::Shard)] = across;
  return mesh;
}

TEST(RecommenderSemantics, EveryShardingLooksUpWhatOneRankDoes) {
  for (const TableSharding sharding : kAll) {
    const TableResult serial = TableExecution(sharding, tiny_mesh(1, 1)).run();
    for (const Mesh& mesh : {tiny_mesh(2, 1), tiny_mesh(1, 2), tiny_mesh(2, 2), tiny_mesh(4, 1)}) {
      const TableResult result = TableExecution(sharding, mesh).run();
      EXPECT_LT(distance(result.pooled, serial.pooled.front()), 1e-12) << to_text(sharding);
      EXPECT_LT(distance(result.gradient, serial.gradient.front()), 1e-12) << to_text(sharding);
    }
  }
}

TEST(RecommenderSemantics, EveryReductionIsNeeded) {
  const Mesh mesh = tiny_mesh(2, 2);
  int reductions = 0;
  for (const TableSharding sharding : kAll) {
    TableExecution whole(sharding, mesh);
    const TableResult serial = TableExecution(sharding, tiny_mesh(1, 1)).run();
    whole.run();
    for (int skip = 0; skip < whole.steps(); ++skip, ++reductions) {
      const TableResult result = TableExecution(sharding, mesh, skip).run();
      EXPECT_GT(std::max(distance(result.pooled, serial.pooled.front()),
                         distance(result.gradient, serial.gradient.front())),
                1e-3);
    }
  }
  EXPECT_EQ(reductions, 2 + 1 + 2);  // row: two axes, table-row: one, data: two
}

}  // namespace
}  // namespace orrery::plan
