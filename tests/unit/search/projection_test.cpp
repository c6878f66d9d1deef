// SPDX-License-Identifier: Apache-2.0
// A recorded search on more ranks: equal work divides, classes and barriers cost what they cost.
#include "search/tree/projection.hpp"

#include <gtest/gtest.h>

#include "search/tree/search.hpp"
#include "tests/unit/search/small_search.hpp"

namespace orrery::search {
namespace {

BatchRecord batch_of(std::size_t nodes, double seconds, bool one_class) {
  BatchRecord batch;
  for (std::size_t node = 0; node < nodes; ++node) {
    batch.nodes.push_back({Seconds(seconds), one_class ? 7 : node});
  }
  return batch;
}

constexpr Network kFree{Seconds(0), Seconds(0)};

TEST(Projection, EqualWorkWithoutWaysDivides) {
  const std::vector<Projection> all = project({batch_of(64, 0.01, false)}, 64, kFree);
  ASSERT_EQ(all.size(), 7u);
  for (const Projection& one : all) {
    EXPECT_NEAR(one.time.value(), 0.64 / one.ranks, 1e-9) << one.ranks;
    EXPECT_NEAR(one.speed_up, one.ranks, 1e-6);
    EXPECT_NEAR(one.efficiency, 1, 1e-6);
  }
}

// Nodes of one class: every further rank pays the first node again.
TEST(Projection, ColdCachesArePaid) {
  const std::vector<Projection> all = project({batch_of(4, 0.01, true)}, 4, kFree);
  EXPECT_NEAR(all[0].time.value(), 0.04, 1e-9);
  EXPECT_NEAR(all[2].time.value(), 0.02, 1e-9);
}

TEST(Projection, BatchesAreBarriers) {
  std::vector<BatchRecord> batches(3, batch_of(3, 0.01, false));
  batches[0].between = Seconds(0.5);
  const std::vector<Projection> all = project(batches, 3, kFree);
  EXPECT_NEAR(all[0].time.value(), 0.59, 1e-9);
  EXPECT_NEAR(all[1].time.value(), 0.56, 1e-9);  // two rounds a batch
  EXPECT_EQ(all[2].ranks, 3);
  EXPECT_NEAR(all[2].time.value(), 0.53, 1e-9);
}

// Two ranks, long nodes: the remote one starts a way later and its result comes a way later.
TEST(Projection, MessagesTakeTheirWay) {
  const Network slow{Seconds(0.25), Seconds(0.125)};
  const std::vector<Projection> all = project({batch_of(2, 1, false)}, 2, slow);
  EXPECT_NEAR(all[0].time.value(), 2, 1e-9);
  EXPECT_NEAR(all[1].time.value(), 1 + 2 * 0.375, 1e-9);
}

// Eight messages at one time wait for the coordinator.
TEST(Projection, TheCoordinatorIsShared) {
  const Network busy{Seconds(0), Seconds(0.125)};
  const std::vector<Projection> all = project({batch_of(9, 1, false)}, 9, busy);
  EXPECT_NEAR(all.back().time.value(), 1 + 8 * 0.125 * 2, 1e-6);
}

TEST(Projection, OfARecordedSearch) {
  Options options;
  options.jobs = 1;
  std::vector<BatchRecord> record;
  options.record = &record;
  const Outcome outcome = search(base_plan({small_spec(8), "dgx-a100:2", {}, 64, 2048}), options);
  Seconds sum;
  std::size_t nodes = 0;
  for (const BatchRecord& batch : record) {
    nodes += batch.nodes.size();
    for (const NodeRecord& node : batch.nodes) {
      EXPECT_GE(node.cpu, Seconds(0));
      sum += node.cpu;
    }
    sum += batch.between;
  }
  EXPECT_GE(nodes, static_cast<std::size_t>(outcome.simulated));
  const std::vector<Projection> all = project(record, 16);
  EXPECT_NEAR(all[0].time.value(), sum.value(), 1e-3 * sum.value());
  EXPECT_LE(sum, outcome.search_time);
  EXPECT_GT(all[1].speed_up, 1);
  EXPECT_LE(all[1].speed_up, 2);
}

}  // namespace
}  // namespace orrery::search
