// SPDX-License-Identifier: Apache-2.0
// What a recommendation network costs on a cluster, in parts that do not depend on how its other
// tables are sharded: the dense network, and for every group of tables and sharding its work on a
// rank, its bytes and the collectives that follow from the rules of layout.hpp. A search keeps one
// model and tries shardings; simulate_recommender() uses the same parts.
#pragma once

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "costmodel/collective_model.hpp"
#include "costmodel/device_model.hpp"
#include "plan/recommender/recommender.hpp"
#include "plan/recommender/table_placement.hpp"

namespace orrery::plan {

inline constexpr Bytes kIndex(8);     // of a row of a table
inline constexpr Bytes kRowState(4);  // of a row-wise optimizer

// A group of tables under one sharding.
struct TableShare {
  TableUnit unit;           // one table, slice, or what a rank has of it
  bool everywhere = false;  // every rank has such a unit of each table; else units are placed
  std::int64_t units = 0;
  std::vector<TableExchange> exchanges;  // without times
  double distinct_rows = 0;              // of all its tables
  // Of the mean rank, wherever units are placed: no placement has less on its fullest rank.
  Seconds mean_lookup;
  Seconds mean_update;
  Bytes mean_bytes;
};

struct DenseCost {
  double parameters = 0;
  double flops = 0;  // of a step on all ranks: products and pairs, forward and backward
  Bytes bytes;
  Seconds forward;
  Seconds backward;
  Seconds reduction;  // all-reduce of the gradients, beside the backward
  Seconds time() const { return forward + backward + std::max(Seconds(), reduction - backward); }
};

class RecommenderModel {
 public:
  explicit RecommenderModel(const Recommender& network);  // keeps a reference

  const Recommender& network() const { return network_; }
  const Mesh& mesh() const { return mesh_; }
  const DenseCost& dense() const { return dense_; }
  Bytes room() const;  // of a device beside its context

  // `group` is a group of the network, with any sharding and slices.
  TableShare share(const TableGroup& group);
  Seconds exchange_time(const TableExchange& exchange, Bytes bytes) const;

 private:
  TableUnit unit_of(const TableGroup& group, double share, double kept, double samples);
  double distinct_rows(const TableGroup& group);
  double pad_tables(models::Block& block, TableSharding sharding) const;
  std::vector<TableExchange> exchanges_of(const TableGroup& group) const;
  void add_dense();
  void add_product(double in, double out);

  const Recommender& network_;
  costmodel::DeviceModel device_;
  costmodel::CollectiveModel collectives_;
  Mesh mesh_;
  int ranks_;
  double samples_;
  Bytes width_;             // of an element of the dense network
  double activations_ = 0;  // elements of a sample that the backward needs
  DenseCost dense_;
  std::map<std::pair<std::int64_t, std::pair<double, double>>, double> distinct_;
};

}  // namespace orrery::plan
