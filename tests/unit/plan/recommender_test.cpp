// SPDX-License-Identifier: Apache-2.0
// Embedding tables sharded by table, column, row and both: volumes against the closed forms
// of DLRM (arXiv 1906.00091) and TorchRec, placement, memory and times.
#include "plan/recommender/recommender.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.hpp"
#include "models/lookups.hpp"
#include "plan/recommender/table_placement.hpp"

namespace orrery::plan {
namespace {

using sim::CommKind;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string recommender_document(const std::string& tables,
                                 const std::string& cluster = "dgx-a100:2",
                                 const std::string& interaction = "dot") {
  return R"({"schema": "orrery-recommender", "version": 1, "name": "dlrm", "batch": 16384,
    "cluster": ")" +
         cluster + R"(", "precision": "fp32", "dense": {"features": 13, "bottom": [512, 256, 128],
    "top": [1024, 512, 1], "interaction": ")" +
         interaction + R"("}, "tables": [)" + tables + "]}";
}

Recommender network_of(const std::string& tables, const std::string& cluster = "dgx-a100:2") {
  return read_recommender(parse_json(recommender_document(tables, cluster), "test"), "test");
}

std::string tables_of(TableSharding sharding, int count = 32) {
  return R"({"name": "t", "rows": 1000000, "dim": 128, "pooling": 20, "count": )" +
         std::to_string(count) + R"(, "sharding": ")" + std::string(to_text(sharding)) + "\"" +
         (sharding == TableSharding::Column ? R"(, "slices": 4})" : "}");
}

const TableExchange* find(const RecommenderCost& cost, const std::string& of, CommKind kind) {
  for (const TableExchange& one : cost.exchanges) {
    if (one.of == of && one.kind == kind) {
      return &one;
    }
  }
  return nullptr;
}

constexpr double kBatch = 16384;
constexpr double kWidths = 32 * 128;  // T D
constexpr double kTableRanks = 16;

// Weights of products, without biases, and the pairs of the interaction, each twice, forward and
// for two gradients.
TEST(Recommender, CountsProductsAndPairs) {
  const Recommender network = network_of(tables_of(TableSharding::Table));
  const double pairs = 33 * 33 * 128;
  const double weights =
      13 * 512 + 512 * 256 + 256 * 128 + (128 + 33 * 32 / 2) * 1024 + 1024 * 512 + 512;
  EXPECT_EQ(simulate_recommender(network).dense_flops, 6 * kBatch * (weights + pairs));
}

// A rank sends (W - 1) / W^2 B T D elements all-to-all, its buffer holds B T D / W; by rows W times
// as much in a reduce-scatter, whose buffer is the whole result.
TEST(Recommender, VolumesOfPooledRows) {
  const RecommenderCost table = simulate_recommender(network_of(tables_of(TableSharding::Table)));
  const TableExchange* pooled = find(table, "pooled rows", CommKind::AllToAll);
  ASSERT_NE(pooled, nullptr);
  EXPECT_EQ(pooled->ranks, 16);
  EXPECT_EQ(pooled->bytes, Bytes(4 * kBatch * kWidths / kTableRanks));
  EXPECT_EQ(pooled->imbalance, 1.0);
  const TableExchange* back = find(table, "gradients of pooled rows", CommKind::AllToAll);
  ASSERT_NE(back, nullptr);
  EXPECT_EQ(back->bytes, pooled->bytes);
  const TableExchange* indices = find(table, "indices", CommKind::AllToAll);
  ASSERT_NE(indices, nullptr);
  EXPECT_EQ(indices->bytes, Bytes(8 * kBatch / kTableRanks * 32 * 20));

  const RecommenderCost row = simulate_recommender(network_of(tables_of(TableSharding::Row)));
  const TableExchange* scattered = find(row, "pooled rows", CommKind::ReduceScatter);
  ASSERT_NE(scattered, nullptr);
  EXPECT_EQ(scattered->bytes, Bytes(4 * kBatch * kWidths));
  const TableExchange* gathered = find(row, "gradients of pooled rows", CommKind::AllGather);
  ASSERT_NE(gathered, nullptr);
  EXPECT_EQ(gathered->bytes, scattered->bytes);

  const RecommenderCost column = simulate_recommender(network_of(tables_of(TableSharding::Column)));
  EXPECT_EQ(find(column, "pooled rows", CommKind::AllToAll)->bytes, pooled->bytes);
  EXPECT_EQ(find(column, "indices", CommKind::AllToAll)->bytes, 4 * indices->bytes);
}

// Reduce-scatter inside the node, all-to-all across nodes; the other way round for gradients.
TEST(Recommender, TableRowIsBoth) {
  const RecommenderCost cost = simulate_recommender(network_of(tables_of(TableSharding::TableRow)));
  const TableExchange* inside = find(cost, "pooled rows", CommKind::ReduceScatter);
  const TableExchange* across = find(cost, "pooled rows", CommKind::AllToAll);
  ASSERT_NE(inside, nullptr);
  ASSERT_NE(across, nullptr);
  EXPECT_EQ(inside->ranks, 8);
  EXPECT_EQ(inside->bytes, Bytes(4 * kBatch * kWidths / 2));  // half of the tables on a node
  EXPECT_EQ(across->ranks, 2);
  EXPECT_EQ(across->bytes, Bytes(4 * kBatch * kWidths / 16));
  EXPECT_NE(find(cost, "gradients of pooled rows", CommKind::AllGather), nullptr);
  EXPECT_NE(find(cost, "gradients of pooled rows", CommKind::AllToAll), nullptr);
}

// The node that holds the only table reduces as many of its rows as with a table on each node.
TEST(Recommender, UnevenNodesWaitForTheFullest) {
  const auto reduced = [](int tables) {
    const RecommenderCost cost =
        simulate_recommender(network_of(tables_of(TableSharding::TableRow, tables)));
    const TableExchange* inside = find(cost, "pooled rows", CommKind::ReduceScatter);
    return inside == nullptr ? Seconds() : inside->time;
  };
  EXPECT_GT(reduced(1), Seconds());
  EXPECT_EQ(reduced(1), reduced(2));
  EXPECT_GT(reduced(3), reduced(2));
  EXPECT_EQ(reduced(3), reduced(4));
}

TEST(Recommender, DataParallelTablesSumTheirGradients) {
  const RecommenderCost cost = simulate_recommender(
      network_of(R"({"name": "small", "rows": 1000, "dim": 128, "sharding": "data"})"));
  ASSERT_EQ(cost.exchanges.size(), 1U);
  EXPECT_EQ(cost.exchanges.front().kind, CommKind::AllReduce);
  EXPECT_EQ(cost.exchanges.front().bytes, Bytes(4.0 * 1000 * 128));
}

Bytes held(const RecommenderCost& cost) { return cost.held.front().bytes; }

// Whole tables, slices of them, parts of their rows: (dim x 4 + 4) bytes a row.
TEST(Recommender, MemoryOfARank) {
  const auto of = [](TableSharding sharding) {
    return simulate_recommender(network_of(tables_of(sharding)));
  };
  const Bytes table(1e6 * (128 * 4 + 4));
  EXPECT_EQ(held(of(TableSharding::Table)), 2 * table);
  EXPECT_EQ(held(of(TableSharding::Row)), 32 * table / 16);
  EXPECT_EQ(held(of(TableSharding::TableRow)), 16 * table / 8);
  EXPECT_EQ(held(of(TableSharding::Column)), Bytes(8 * 1e6 * (32 * 4 + 4)));
  const RecommenderCost data = of(TableSharding::Data);
  EXPECT_EQ(held(data), 32 * table);
  EXPECT_TRUE(data.fits);  // 16.5 GB of 80
  EXPECT_FALSE(simulate_recommender(network_of(tables_of(TableSharding::Data, 200))).fits);
}

// Longest processing time first: 7, 6, 5, 4, 3 on two ranks gives 7 + 4 and 6 + 5, then 3.
TEST(Recommender, GreedyPlacement) {
  std::vector<TableUnit> units;
  for (const double time : {3.0, 5.0, 7.0, 4.0, 6.0}) {
    TableUnit unit;
    unit.group = units.size();
    unit.lookup = Seconds(time);
    unit.bytes = Bytes(1);
    units.push_back(unit);
  }
  const TablePlacement placement = place_tables(units, std::vector<TableLoad>(2), 5, 2, Bytes(100));
  EXPECT_EQ(placement.ranks[0].lookup, Seconds(14));
  EXPECT_EQ(placement.ranks[1].lookup, Seconds(11));
  EXPECT_EQ(placement.counts[0], (std::vector<std::int64_t>{1, 0}));
  const TablePlacement full = place_tables(units, std::vector<TableLoad>(2), 5, 2, Bytes(2));
  EXPECT_FALSE(full.fits);
}

// Unlike tables: the exchange waits for the rank with the widest results.
TEST(Recommender, ImbalanceIsThatOfTheFullestRank) {
  const Recommender network = read_recommender(
      parse_json(recommender_document(R"({"name": "wide", "rows": 1000, "dim": 256, "count": 1},
                              {"name": "narrow", "rows": 1000, "dim": 64, "count": 15})",
                                      "dgx-a100:2", "concat"),
                 "test"),
      "test");
  const RecommenderCost cost = simulate_recommender(network);
  const TableExchange* pooled = find(cost, "pooled rows", CommKind::AllToAll);
  EXPECT_NEAR(pooled->imbalance, 256.0 * 16 / (256 + 15 * 64), 1e-12);
}

// Indices go by lookups, results by widths: tables of one width that are looked up unlike often.
TEST(Recommender, IndicesWaitForTheRankWithMostLookups) {
  const RecommenderCost cost = simulate_recommender(network_of(
      R"({"name": "hot", "rows": 5000000, "dim": 128, "count": 8, "pooling": 100},
         {"name": "cold", "rows": 5000000, "dim": 128, "count": 8, "pooling": 1})"));
  EXPECT_NEAR(find(cost, "pooled rows", CommKind::AllToAll)->imbalance, 1, 1e-12);
  EXPECT_NEAR(find(cost, "indices", CommKind::AllToAll)->imbalance, 100.0 * 16 / (8 * 101), 1e-12);
}

// Products in fewer bits have results in 16: what travels is as wide as with bf16.
TEST(Recommender, ResultsOfQuantisedNetworksAreIn16Bits) {
  const auto of = [](const std::string& precision) {
    std::string text = recommender_document(tables_of(TableSharding::Table), "dgx-b200:2");
    const std::string fp32 = "\"fp32\"";
    text.replace(text.find(fp32), fp32.size(), "\"" + precision + "\"");
    return simulate_recommender(read_recommender(parse_json(text, "test"), "test"));
  };
  const RecommenderCost bf16 = of("bf16");
  for (const char* precision : {"fp8", "nvfp4"}) {
    const RecommenderCost cost = of(precision);
    EXPECT_EQ(find(cost, "pooled rows", CommKind::AllToAll)->bytes,
              find(bf16, "pooled rows", CommKind::AllToAll)->bytes);
    EXPECT_EQ(cost.dense_bytes, bf16.dense_bytes);
    EXPECT_EQ(cost.lookup, bf16.lookup);
  }
}

// Indices of what a rank looks up and its results before they are exchanged; with copies
// everywhere the gradient of the whole table, which is also read and applied whole.
TEST(Recommender, BuffersBesideTables) {
  const auto of = [](TableSharding sharding) {
    return simulate_recommender(network_of(tables_of(sharding)));
  };
  const Bytes indices(8 * kBatch * 20 * 32 / kTableRanks);
  const Bytes results(4 * kBatch * kWidths);
  const RecommenderCost table = of(TableSharding::Table);
  EXPECT_EQ(table.buffer_bytes, indices + results / kTableRanks);
  EXPECT_EQ(of(TableSharding::Row).buffer_bytes, indices + results);
  EXPECT_EQ(of(TableSharding::TableRow).buffer_bytes, indices + results / 2);
  const RecommenderCost data = of(TableSharding::Data);
  EXPECT_EQ(data.buffer_bytes, Bytes(32 * 1e6 * 128 * 4));
  EXPECT_GT(data.update.value(), 32 * 1e6 * 128 * 4 * 4 / 2.1e12);  // of an A100's HBM
  for (const RecommenderCost& cost : {table, data}) {
    EXPECT_EQ(cost.fullest_bytes, cost.table_bytes + cost.buffer_bytes + cost.dense_bytes +
                                      Bytes(1024.0 * 1024 * 1024));
  }
}

TEST(Recommender, DistinctRowsAreThoseOfZipf) {
  const models::ZipfRows exact(54542, 0.82);
  for (const std::int64_t draws : {100, 51200, 1'000'000}) {
    EXPECT_NEAR(expected_distinct_rows(54542, 0.82, static_cast<double>(draws)),
                exact.expected_unique(draws), 2e-3 * exact.expected_unique(draws));
  }
  EXPECT_NEAR(expected_distinct_rows(1000, 0, 1e9), 1000, 1e-6);
  EXPECT_LT(expected_distinct_rows(1'000'000'000, 1.05, 1e6), 1e6);
}

// HBM-bound: lookups of a rank take the bytes they touch, and all shardings touch the same rows.
TEST(Recommender, LookupsTakeTheirBytes) {
  const auto cost = [](TableSharding sharding, const char* cluster) {
    return simulate_recommender(network_of(tables_of(sharding), cluster));
  };
  const RecommenderCost two = cost(TableSharding::Table, "dgx-a100:2");
  const RecommenderCost four = cost(TableSharding::Table, "dgx-a100:4");
  EXPECT_NEAR(two.lookup / four.lookup, 2.0, 0.02);
  // By rows every rank writes partial results of all samples.
  EXPECT_GT(cost(TableSharding::Row, "dgx-a100:2").lookup, two.lookup);
  EXPECT_GT(two.step, two.pipelined);
  EXPECT_NEAR((two.step - two.pipelined).value(), two.exchange_indices.value(), 1e-12);
}

std::string document_problem(const std::string& text) {
  try {
    read_recommender(parse_json(text, "net.json"), "net.json");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Recommender, BadInput) {
  EXPECT_THAT(document_problem(recommender_document(
                  R"({"name": "a", "rows": 5, "dim": 128, "sharding": "row"})")),
              HasSubstr("table \"a\": dimension rows = 5 is sharded by tp x dp = 16"));
  EXPECT_THAT(document_problem(recommender_document(
                  R"({"name": "a", "rows": 50, "dim": 128, "sharding": "column",
                                   "slices": 3})")),
              HasSubstr("remainder 2"));
  EXPECT_THAT(document_problem(recommender_document(R"({"name": "a", "rows": 50, "dim": 64})")),
              HasSubstr("has width 64, but the bottom network ends with 128"));
  EXPECT_THAT(document_problem(recommender_document(
                  R"({"name": "a", "rows": 50, "dim": 128, "sharding": "tables"})")),
              HasSubstr("table"));
  EXPECT_THAT(document_problem(recommender_document("")), HasSubstr("no embedding tables"));
  EXPECT_THAT(document_problem(recommender_document(R"({"name": "a", "rows": 50, "dim": 128},
                                           {"name": "a", "rows": 60, "dim": 128})")),
              HasSubstr("a second group of tables is called \"a\""));
  const auto with_batch = [](const std::string& batch) {
    std::string text = recommender_document(R"({"name": "a", "rows": 50, "dim": 128})");
    return text.replace(text.find("16384"), 5, batch);
  };
  EXPECT_THAT(document_problem(with_batch("1000")),
              HasSubstr("not divisible by the 16 GPUs of dgx-a100:2 (set batch to 1008)"));
  EXPECT_THAT(document_problem(with_batch("3")), HasSubstr("set batch to 16"));
  EXPECT_THAT(document_problem(with_batch(R"(16384, "schedule": "nestpipe", "micro_batches": 3)")),
              HasSubstr("16 GPUs x micro_batches = 3 (set batch to 16368)"));
  EXPECT_THAT(document_problem(
                  recommender_document(R"({"name": "a", "rows": 50, "dim": 128, "slices": 2})")),
              HasSubstr("slices belong to sharding column"));
}

// Names of hardware are looked up elsewhere; the message says which document has them, and where.
TEST(Recommender, WrongNamesOfHardwareHaveAPlace) {
  const std::string table = R"({"name": "a", "rows": 50, "dim": 128})";
  EXPECT_THAT(document_problem(recommender_document(table, "dgx-a10:2")),
              StartsWith("net.json: /cluster: cluster \"dgx-a10:2\": no cluster"));
  EXPECT_THAT(
      document_problem(recommender_document(table, R"(dgx-a100:2", "profile": "no-such-profile)")),
      AllOf(StartsWith("net.json: /profile: "), HasSubstr("no-such-profile")));
}

}  // namespace
}  // namespace orrery::plan
