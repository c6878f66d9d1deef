// SPDX-License-Identifier: Apache-2.0
// The search of table shardings against exhaustive enumeration, its certificate, its bounds, and
// what it keeps of the document.
#include "search/table_search.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "base/error.hpp"
#include "base/random.hpp"
#include "plan/recommender/pipeline.hpp"
#include "search/nested_search.hpp"

namespace orrery::search {
namespace {

using plan::Recommender;
using plan::RecommenderCost;
using plan::TableGroup;
using plan::TableSharding;
using ::testing::HasSubstr;

Recommender network_of(const std::string& tables, const std::string& cluster = "dgx-a100:2",
                       std::int64_t batch = 16384) {
  const std::string text =
      R"({"schema": "orrery-recommender", "version": 1, "name": "dlrm", "cluster": ")" + cluster +
      R"(", "batch": )" + std::to_string(batch) +
      R"(, "dense": {"features": 13, "bottom": [256, 128], "top": [512, 1],
        "interaction": "concat"}, "tables": [)" +
      tables + "]}";
  return plan::read_recommender(parse_json(text, "net.json"), "net.json");
}

std::vector<TableGroup> all_variants(const TableGroup& group, const Recommender& network) {
  std::vector<TableGroup> all;
  for (const TableSharding sharding :
       {TableSharding::Table, TableSharding::Row, TableSharding::TableRow, TableSharding::Data}) {
    TableGroup variant = group;
    variant.sharding = sharding;
    const bool across = network.cluster.num_nodes > 1 || sharding != TableSharding::TableRow;
    if (across && group.rows >= network.cluster.num_gpus()) {
      all.push_back(variant);
    }
  }
  for (int slices = 2; slices <= group.dim / 32; slices *= 2) {
    TableGroup variant = group;
    variant.sharding = TableSharding::Column;
    variant.slices = slices;
    all.push_back(variant);
  }
  return all;
}

// The fastest of all combinations.
double exhaustive(Recommender network, std::size_t group, std::int64_t& plans) {
  if (group == network.tables.size()) {
    ++plans;
    const RecommenderCost cost = plan::simulate_recommender(network);
    return cost.fits ? cost.step.value() : std::numeric_limits<double>::infinity();
  }
  double best = std::numeric_limits<double>::infinity();
  for (const TableGroup& variant : all_variants(network.tables[group], network)) {
    network.tables[group] = variant;
    best = std::min(best, exhaustive(network, group + 1, plans));
  }
  return best;
}

TableSearch steps(std::int64_t most) {
  TableSearch search;
  search.most_steps = most;
  return search;
}

TableSearch within(double gap) {
  TableSearch search;
  search.gap_fraction = gap;
  return search;
}

// Every plan was pruned, left over or simulated.
void expect_each_counted_once(const TableOutcome& outcome) {
  EXPECT_EQ(outcome.pruned + outcome.unexplored + static_cast<double>(outcome.simulated),
            outcome.plans);
  EXPECT_EQ(outcome.unexplored > 0, outcome.timed_out);
}

TableSearch most(std::size_t plans) {
  TableSearch search;
  search.top = plans;
  return search;
}

std::string random_table(Random& random, int index) {
  const std::int64_t rows = std::int64_t{1} << (7 + static_cast<int>(random.below(20)));
  return R"({"name": "t)" + std::to_string(index) + R"(", "rows": )" + std::to_string(rows) +
         R"(, "dim": )" + std::to_string(32 << static_cast<int>(random.below(3))) +
         R"(, "count": )" + std::to_string(1 + random.below(20)) + R"(, "pooling": )" +
         std::to_string(1 + random.below(40)) + "}";
}

TEST(TableSearch, EqualsExhaustiveSimulation) {
  Random random(7);
  for (int round = 0; round < 12; ++round) {
    std::string tables;
    for (int index = 0; index < 3; ++index) {
      tables += (index > 0 ? ", " : "") + random_table(random, index);
    }
    const Recommender network =
        network_of(tables, round % 2 == 0 ? "dgx-a100:2" : "dgx-1v:1", round < 6 ? 16384 : 2048);
    std::int64_t plans = 0;
    const double best = exhaustive(network, 0, plans);
    const TableOutcome outcome = search_tables(network, {});
    ASSERT_EQ(outcome.found.empty(), std::isinf(best)) << tables;
    EXPECT_EQ(outcome.plans, static_cast<double>(plans));
    expect_each_counted_once(outcome);
    if (!outcome.found.empty()) {
      EXPECT_EQ(outcome.found.front().cost.step.value(), best) << tables;
      EXPECT_EQ(outcome.gap_fraction, 0);
      EXPECT_EQ(outcome.lower_bound.value(), best);
    }
  }
}

TEST(TableSearch, MemoryForcesLargeTablesApart) {
  const std::string huge = R"({"name": "huge", "rows": 400000000, "dim": 128})";  // 206 GB
  const TableOutcome outcome = search_tables(network_of(huge), {});
  ASSERT_FALSE(outcome.found.empty());
  const TableGroup& group = outcome.found.front().network.tables.front();
  EXPECT_TRUE(group.sharding == TableSharding::Row || group.sharding == TableSharding::TableRow ||
              group.slices > 2);
  EXPECT_TRUE(outcome.found.front().cost.fits);
  const TableOutcome none = search_tables(network_of(huge, "dgx-a100-40:1"), {});
  EXPECT_FALSE(none.found.empty());  // 26 GB a rank by rows
  const TableOutcome little = search_tables(network_of(huge, "p3-16xlarge:1"), {});
  EXPECT_TRUE(little.found.empty());
  EXPECT_THAT(little.closest,
              HasSubstr("tables, the results of their lookups and the dense network need"));
}

// Tables by row fit, most other plans do not: whatever the number of partial choices looked at, a
// plan is found, and all are counted.
TEST(TableSearch, FindsAPlanWhereFewFit) {
  std::string tables;
  for (int index = 0; index < 40; ++index) {
    tables += std::string(index > 0 ? ", " : "") + R"({"name": "t)" + std::to_string(index) +
              R"(", "dim": 128, "rows": )" +
              std::to_string(index % 3 == 0 ? 150'000'000 : 1'000'000 + index) + "}";  // 77 GB
  }
  TableSearch search;
  search.most_steps = 100;
  const TableOutcome outcome = search_tables(network_of(tables, "dgx-a100:8"), search);
  ASSERT_FALSE(outcome.found.empty());
  EXPECT_TRUE(outcome.timed_out);
  EXPECT_TRUE(outcome.found.front().cost.fits);
  EXPECT_GT(outcome.gap_fraction, 0);
  // Equal groups, of which some must be cut: still each plan counts once.
  const std::string same = R"("dim": 128, "rows": 60000000)";  // 31 GB
  const TableOutcome few =
      search_tables(network_of(R"({"name": "a", )" + same + R"(}, {"name": "b", )" + same +
                                   R"(}, {"name": "c", )" + same + "}",
                               "dgx-1v:1"),
                    {});
  ASSERT_FALSE(few.found.empty());
  expect_each_counted_once(few);
}

TEST(TableSearch, KeepsWhatTheDocumentStates) {
  const std::string tables = R"({"name": "a", "rows": 100000, "dim": 128, "sharding": "row"},
                                {"name": "b", "rows": 100000, "dim": 128})";
  const TableOutcome outcome = search_tables(network_of(tables), most(100));
  for (const TableFound& found : outcome.found) {
    EXPECT_EQ(found.network.tables.front().sharding, TableSharding::Row);
  }
  EXPECT_EQ(outcome.plans, 6);  // table, 2 and 4 slices, row, table-row, data
  // What was found is a document that states everything.
  const Json written = plan::to_json(outcome.found.front().network);
  const Recommender again = plan::read_recommender(written, "plan.json");
  EXPECT_EQ(plan::simulate_recommender(again).step.value(),
            outcome.found.front().cost.step.value());
  EXPECT_EQ(search_tables(again, {}).plans, 1);
}

TEST(TableSearch, AnEarlyEndSaysWhatIsLeft) {
  Random random(11);
  std::string tables;
  for (int index = 0; index < 12; ++index) {
    tables += (index > 0 ? ", " : "") + random_table(random, index);
  }
  const Recommender network = network_of(tables);
  const TableOutcome early = search_tables(network, steps(40));
  ASSERT_FALSE(early.found.empty());
  EXPECT_TRUE(early.timed_out);
  EXPECT_GT(early.gap_fraction, 0);
  expect_each_counted_once(early);
  const TableOutcome loose = search_tables(network, within(0.05));
  EXPECT_LE(loose.gap_fraction, 0.05);
  EXPECT_LE(early.lower_bound, loose.found.front().cost.step);
}

TEST(TableSearch, EqualGroupsAreOneOrder) {
  std::string tables;
  for (const char* name : {"a", "b", "c", "d"}) {
    tables += std::string(tables.empty() ? "" : ", ") + R"({"name": ")" + name +
              R"(", "rows": 1000000, "dim": 128, "pooling": 20})";
  }
  const TableOutcome outcome = search_tables(network_of(tables), {});
  std::int64_t plans = 0;
  EXPECT_EQ(outcome.found.front().cost.step.value(), exhaustive(network_of(tables), 0, plans));
  EXPECT_EQ(plans, 6 * 6 * 6 * 6);
  EXPECT_EQ(outcome.plans, 126);  // 4 of 6 choices, equal ones and no order
  expect_each_counted_once(outcome);
}

// The fastest of all combinations under the nested schedule.
double exhaustive_nested(Recommender network, std::size_t group) {
  double best = std::numeric_limits<double>::infinity();
  if (group == network.tables.size()) {
    for (const int count : plan::nested_micro_batches(network)) {
      network.micro_batches = count;
      const RecommenderCost cost = plan::simulate_recommender(network);
      best = cost.fits ? std::min(best, cost.iteration().value()) : best;
    }
    return best;
  }
  for (const TableGroup& variant : all_variants(network.tables[group], network)) {
    network.tables[group] = variant;
    best = std::min(best, exhaustive_nested(network, group + 1));
  }
  return best;
}

TEST(NestedSearch, FindsTheBestShardingsAndMicroBatches) {
  Random random(7);
  for (int round = 0; round < 6; ++round) {
    std::string tables;
    for (int index = 0; index < 2; ++index) {
      tables += (index > 0 ? ", " : "") + random_table(random, index);
    }
    Recommender network = network_of(tables, "dgx-a100:2", round % 2 == 0 ? 16384 : 1024);
    network.nested = true;
    const TableOutcome found =
        search_nested(network, plan::nested_micro_batches(network), within(0.0));
    ASSERT_FALSE(found.found.empty());
    const double best = exhaustive_nested(network, 0);
    EXPECT_NEAR(found.found.front().cost.iteration().value(), best, best * 1e-9);
    EXPECT_LE(found.lower_bound.value(), best * (1 + 1e-9));
    EXPECT_EQ(found.gap_fraction, 0.0);
    EXPECT_EQ(plan::simulate_recommender(found.found.front().network).iteration(),
              found.found.front().cost.iteration());
  }
}

// Without a schedule that is stated the best of both kinds, with what is proved of both.
TEST(NestedSearch, IsComparedWithPartsInTurn) {
  for (const int batch : {1024, 65536}) {
    const Recommender network = network_of(R"({"name": "a", "rows": 1000000, "dim": 64},
                                              {"name": "b", "rows": 20000000, "dim": 128})",
                                           "dgx-a100:2", batch);
    const std::vector<int> counts = plan::nested_micro_batches(network);
    const TableOutcome in_turn = search_tables(network, within(0.0));
    const TableOutcome nested = search_nested(network, counts, within(0.0));
    const TableOutcome both = search_schedules(network, counts, within(0.0));
    const Seconds best =
        std::min(in_turn.found.front().cost.iteration(), nested.found.front().cost.iteration());
    EXPECT_EQ(both.found.front().cost.iteration(), best);
    EXPECT_EQ(both.found.front().network.nested, nested.found.front().cost.iteration() == best);
    EXPECT_EQ(both.plans, in_turn.plans + nested.plans);
    EXPECT_EQ(both.lower_bound, std::min(in_turn.lower_bound, nested.lower_bound));
    EXPECT_EQ(both.gap_fraction, 0.0);
    EXPECT_EQ(plan::simulate_recommender(both.found.front().network).iteration(), best);
  }
}

TEST(NestedSearch, WhatItDidNotComeToIsNotProved) {
  Recommender network = network_of(R"({"name": "a", "rows": 1000000, "dim": 64},
                                      {"name": "b", "rows": 2000000, "dim": 64})");
  network.nested = true;
  const TableOutcome all = search_nested(network, {1, 2}, within(0.0));
  const TableOutcome early = search_nested(network, {1, 2}, steps(0));
  EXPECT_TRUE(early.timed_out);
  EXPECT_LE(early.lower_bound, all.found.front().cost.iteration());
  EXPECT_EQ(all.plans, 2 * search_nested(network, {1}, within(0.0)).plans);
}

}  // namespace
}  // namespace orrery::search
