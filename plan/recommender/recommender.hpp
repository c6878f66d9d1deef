// SPDX-License-Identifier: Apache-2.0
// Recommendation networks: embedding tables looked up by sparse features, a bottom network for the
// dense ones, their interaction and a top network (DLRM, Naumov et al. 2019). Tables are sharded by
// table, column, row, or by row inside a node and by table across nodes (TorchRec); the rest is
// data-parallel. Which collectives follow is left to the rules of layout.hpp: a bag of lookups is a
// product of a multi-hot matrix {batch, table, row} with a table {table, row, width}, so that axes
// on `table` or `width` exchange results all-to-all, axes on `row` leave partial sums, which are
// scattered to the samples.
//
// Costs: a lookup reads indices and rows and writes sums at the rate of HBM (random rows at the
// profile's rate of embeddings); the backward reads the gradient of every lookup and updates each
// distinct row once, by Zipf's law. Tables go to ranks by longest processing time first (TorchRec's
// GreedyPerfPartitioner); an all-to-all takes as long as that of the rank that sends most.
// O(tables x log tables + ranks) beside the collectives; deterministic.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.hpp"
#include "costmodel/profile.hpp"
#include "plan/layout.hpp"
#include "topologies/cluster.hpp"

namespace orrery::plan {

enum class TableSharding : std::uint8_t { Table, Column, Row, TableRow, Data };
std::string_view to_text(TableSharding sharding);

// Equal tables.
struct TableGroup {
  std::string name;
  std::int64_t count = 1;
  std::int64_t rows = 0;
  std::int64_t dim = 0;
  double pooling = 1;  // lookups of a sample in one table
  double slope = 1;    // of Zipf's law of the rows
  TableSharding sharding = TableSharding::Table;
  int slices = 1;       // of a table's width, each placed by itself (Column)
  bool stated = false;  // the document says how it is sharded, so a search keeps that
};

// The schedule that a document names for `nested`.
inline constexpr std::string_view kNestedSchedule = "nestpipe";
inline constexpr int kMostMicroBatches = 1024;  // of a batch

struct Recommender {
  std::string name;
  std::int64_t batch = 0;  // samples of a step on all ranks
  DType precision = DType::Fp32;
  int table_bytes = 4;  // of an element of a row
  std::int64_t features = 0;
  std::vector<std::int64_t> bottom;  // widths
  std::vector<std::int64_t> top;
  bool dot = true;  // interaction: products of all pairs of features; else they are joined
  std::vector<TableGroup> tables;
  // Batches prepared ahead and exchanges beside the dense network (plan/recommender/pipeline.hpp),
  // in so many micro-batches; else one part after the other.
  bool nested = false;
  int micro_batches = 1;
  topologies::Cluster cluster;
  costmodel::Profile profile;
};

// What a command line says beside the document, and in place of it.
struct RecommenderRun {
  std::optional<topologies::Cluster> cluster;
  std::int64_t batch = 0;  // 0: the document's
  std::string precision;   // empty: the document's
  std::string profile;
};
Recommender read_recommender(const Json& document, const std::string& where,
                             const RecommenderRun& run = {});
// A document that holds its cluster and profile, so that it needs no other file.
Json to_json(const Recommender& network);
bool is_recommender(const Json& document);

// Axes: tp inside the node, dp across nodes.
Mesh table_mesh(const topologies::Cluster& cluster);
// Tensors: indices, table, pooled; the operator of the lookups.
models::Block lookup_block(const TableGroup& group);
AxisRules lookup_rules(TableSharding sharding);
Layout by_sample();  // of everything that is data-parallel

// A collective of a step, over all tables of one sharding.
struct TableExchange {
  bool forward = true;
  std::string of;  // "indices", "pooled rows", "gradients of pooled rows", "table gradients"
  sim::CommKind kind = sim::CommKind::None;
  std::vector<Axis> axes;
  int ranks = 1;
  Bytes bytes;           // buffer of the mean rank, as nccl-tests prints it
  double imbalance = 1;  // of the rank that sends most
  Seconds time;
};

struct TableLoad {
  Seconds lookup;
  Seconds update;
  Bytes bytes;  // of tables and their optimizer states
  // Indices received, results before their exchange, dense gradients of data-parallel tables.
  Bytes buffers;
};

struct RecommenderCost {
  struct Held {
    std::string group;
    std::string shape;  // what a rank holds of a table
    Bytes bytes;        // on the rank with most of it
    std::string layout;
    std::int64_t least = 0;  // tables or slices on a rank
    std::int64_t most = 0;
  };
  std::vector<Held> held;
  std::vector<TableExchange> exchanges;
  std::vector<TableLoad> ranks;
  double dense_parameters = 0;
  double dense_flops = 0;  // of a step on all ranks
  Bytes dense_bytes;       // parameters, gradients, optimizer and activations of a rank
  double unique_rows = 0;  // that a step touches, of all tables
  double lookups = 0;
  Bytes table_bytes;                              // of the fullest rank, row states included
  std::vector<std::vector<std::int64_t>> counts;  // tables or slices by group and rank
  Seconds lookup;                                 // of the slowest rank
  Seconds update;  // gradients of rows and their update, of the slowest rank
  Seconds dense_forward;
  Seconds dense_backward;
  Seconds exchange_forward;  // pooled rows
  Seconds exchange_indices;
  Seconds exchange_backward;
  Seconds dense_reduction;  // all-reduce of dense gradients
  Seconds step;             // one thing after the other, the reduction under the backward
  Seconds pipelined;        // indices exchanged under the step before
  Seconds nested;           // by the schedule that the document names; 0: none
  Seconds shared_rows;      // its synchronisation, at the end of a step
  Seconds step_low;         // the 80 % interval of `step`
  Seconds step_high;
  Bytes buffer_bytes;  // of the fullest rank (TableLoad), with the schedule's two embedding buffers
  Bytes fullest_bytes;  // of a rank, with 1 GiB of context
  // A step as the document says.
  Seconds iteration() const { return nested.value() > 0 ? nested : step; }
  bool fits = true;
};
RecommenderCost simulate_recommender(const Recommender& network);

class RecommenderModel;
struct TableShare;
// The same without what ranks hold and the interval, from parts that a search has already.
RecommenderCost cost_of(const RecommenderModel& model, const std::vector<TableGroup>& tables,
                        const std::vector<TableShare>& shares);

}  // namespace orrery::plan
