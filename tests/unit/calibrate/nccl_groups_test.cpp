// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "calibrate/nccl/groups.hpp"
#include "calibrate/nccl/measure_plan.hpp"

namespace orrery::calibrate {
namespace {

using testing::ElementsAre;

// The hybrid cube mesh of a DGX-1V: {gpu, gpu, NVLinks} (topologies/nodes/dgx-1v.json).
LinkClasses cube_mesh() {
  LinkClasses links(8, std::vector<int>(8, 0));
  const auto link = [&](std::size_t a, std::size_t b, int count) {
    links[a][b] = links[b][a] = count;
  };
  for (const std::size_t board : {0U, 4U}) {
    link(board + 0, board + 1, 1);
    link(board + 0, board + 2, 1);
    link(board + 0, board + 3, 2);
    link(board + 1, board + 2, 2);
    link(board + 1, board + 3, 1);
    link(board + 2, board + 3, 2);
  }
  link(0, 4, 2);
  link(1, 5, 2);
  link(2, 6, 1);
  link(3, 7, 1);
  return links;
}

std::map<GroupKind, int> kinds_of(const std::vector<GroupPlan>& groups) {
  std::map<GroupKind, int> kinds;
  for (const GroupPlan& group : groups) {
    ++kinds[group.kind];
  }
  return kinds;
}

TEST(NcclGroups, OneNodeOfEqualLinks) {
  const auto groups = plan_groups(regular_placement(1, 8), {});
  std::vector<std::string> names;
  for (const GroupPlan& group : groups) {
    names.push_back(group.name);
  }
  EXPECT_THAT(names, ElementsAre("2 GPUs of a node", "4 GPUs of a node", "8 GPUs of a node",
                                 "2 groups of 4 GPUs at once", "4 groups of 2 GPUs at once"));
  const GroupPlan& pairs = groups.back();
  EXPECT_EQ(pairs.communicators.size(), 4U);
  EXPECT_EQ(pairs.colour_of(5), 2);
  EXPECT_EQ(pairs.rank_in_group(5), 1);
  EXPECT_EQ(groups.front().colour_of(5), -1);
  EXPECT_EQ(groups.front().rank_in_group(5), -1);
}

TEST(NcclGroups, OddNodesAndOneRank) {
  const auto six = plan_groups(regular_placement(1, 6), {});
  EXPECT_EQ(six[0].ranks(), 2);
  EXPECT_EQ(six[1].ranks(), 4);
  EXPECT_EQ(six[2].ranks(), 6);
  const auto one = plan_groups(regular_placement(1, 1), {});
  ASSERT_EQ(one.size(), 1U);
  EXPECT_EQ(one.front().ranks(), 1);
}

TEST(NcclGroups, SeveralNodes) {
  const auto groups = plan_groups(regular_placement(4, 8), {});
  const auto kinds = kinds_of(groups);
  EXPECT_EQ(kinds.at(GroupKind::WholeNodes), 2);
  EXPECT_EQ(kinds.at(GroupKind::Rails), 2);
  EXPECT_EQ(kinds.at(GroupKind::OnePerNode), 3);  // 2, 4, first and last
  EXPECT_EQ(kinds.at(GroupKind::SharedSpine), 1);
  for (const GroupPlan& group : groups) {
    std::set<int> seen;
    for (const auto& ranks : group.communicators) {
      EXPECT_EQ(static_cast<int>(ranks.size()), group.ranks());
      EXPECT_EQ(group.ranks(), group.nodes * group.ranks_per_node) << group.name;
      for (const int rank : ranks) {
        EXPECT_TRUE(seen.insert(rank).second) << group.name;
        EXPECT_LT(rank, 32);
      }
    }
  }
}

TEST(NcclGroups, HostsThatAreNotInOrderAreNodesAllTheSame) {
  const Placement placement = placement_of({"b", "a", "b", "a"});
  EXPECT_THAT(placement.nodes, ElementsAre(ElementsAre(0, 2), ElementsAre(1, 3)));
  const auto groups = plan_groups(placement, {});
  const auto whole = std::find_if(groups.begin(), groups.end(), [](const GroupPlan& group) {
    return group.kind == GroupKind::WholeNodes;
  });
  ASSERT_NE(whole, groups.end());
  EXPECT_THAT(whole->communicators.front(), ElementsAre(0, 2, 1, 3));
}

TEST(NcclGroups, OneGpuANodeHasNoRepeatedGroups) {
  const auto groups = plan_groups(regular_placement(2, 1), {});
  EXPECT_EQ(groups.size(), 1U);  // whole nodes and rails are the same two ranks
}

// Two links, one link or none; on the whole mesh, few of the 247 subsets differ.
TEST(NcclGroups, MeshSubsetsAreDistinct) {
  const LinkClasses links = cube_mesh();
  const auto pairs = distinct_subsets(links, 8, 2);
  EXPECT_THAT(pairs, ElementsAre(ElementsAre(0, 1), ElementsAre(0, 3), ElementsAre(0, 5)));
  EXPECT_EQ(distinct_subsets(links, 8, 8).size(), 1U);
  std::size_t total = 0;
  for (int size = 2; size <= 8; ++size) {
    total += distinct_subsets(links, 8, size).size();
  }
  EXPECT_LT(total, 80U);
  EXPECT_GT(total, 15U);
}

TEST(NcclGroups, RelabelledMeshHasAsManySubsets) {
  const LinkClasses links = cube_mesh();
  LinkClasses turned(8, std::vector<int>(8, 0));
  const std::vector<std::size_t> order = {3, 7, 1, 0, 6, 2, 5, 4};
  for (std::size_t a = 0; a < 8; ++a) {
    for (std::size_t b = 0; b < 8; ++b) {
      turned[order[a]][order[b]] = links[a][b];
    }
  }
  for (int size = 2; size <= 6; ++size) {
    EXPECT_EQ(distinct_subsets(links, 8, size).size(), distinct_subsets(turned, 8, size).size());
  }
}

TEST(MeasurePlan, ElevenSizesFromOneKibToOneGib) {
  const auto sizes = sizes_between(1 << 10, std::int64_t{1} << 30);
  ASSERT_EQ(sizes.size(), 11U);
  EXPECT_EQ(sizes.front(), 1 << 10);
  EXPECT_EQ(sizes.back(), std::int64_t{1} << 30);
  EXPECT_THAT(sizes_between(5000, 70'000), ElementsAre(16'384, 65'536));
}

TEST(MeasurePlan, SendsAreBetweenTwo) {
  const MeasurePlan plan = plan_measurements(regular_placement(1, 8), {}, {});
  for (const MeasureSeries& series : plan.series) {
    const bool sends =
        std::count(series.kinds.begin(), series.kinds.end(), sim::CommKind::SendReceive) > 0;
    EXPECT_EQ(sends, series.group.ranks() == 2 && series.beside.empty()) << series.group.name;
  }
  EXPECT_FALSE(plan.series.back().beside.empty());
  EXPECT_EQ(plan.series.back().group.ranks(), 8);
}

TEST(MeasurePlan, OptionsNarrowIt) {
  const MeasureOptions narrow{.min_bytes = 1 << 20,
                              .max_bytes = 1 << 22,
                              .kinds = {sim::CommKind::AllReduce},
                              .interference = false};
  const MeasurePlan plan = plan_measurements(regular_placement(1, 2), {}, narrow);
  EXPECT_EQ(plan.num_points(), 2);
  const MeasurePlan all = plan_measurements(regular_placement(1, 2), {}, {});
  EXPECT_LT(expected_duration(plan, narrow).value(), expected_duration(all, {}).value());
}

TEST(MeasurePlan, RepetitionsStayInTheirBounds) {
  for (const double seconds : {1e-9, 5e-6, 1e-4, 3e-3, 0.1, 5.0}) {
    const Repetitions repetitions = repetitions_for(Seconds(seconds));
    EXPECT_GE(repetitions.batches, 3);
    EXPECT_LE(repetitions.batches, 20);
    EXPECT_GE(repetitions.iterations, 1);
    EXPECT_LE(repetitions.iterations, 50);
  }
  EXPECT_EQ(repetitions_for(Seconds(10e-6)).iterations, 20);
  EXPECT_EQ(repetitions_for(Seconds(1.0)).batches, 3);
}

}  // namespace
}  // namespace orrery::calibrate
