// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/fair_share.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace orrery::sim {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

std::vector<FairShare::Variable> solve(FairShare& share) {
  const auto changed = share.solve();
  return {changed.begin(), changed.end()};
}

FairShare::Variable add(FairShare& share, std::initializer_list<ResourceId> route,
                        double bound = FairShare::kUnbounded, double weight = 1.0,
                        std::uint32_t multiplicity = 1) {
  std::vector<Demand> demands;
  for (const ResourceId resource : route) {
    demands.push_back({resource, 1.0});
  }
  return share.add(demands, bound, weight, multiplicity);
}

// a on {0}, b on {0, 1}, c on {1}; capacities 10 and 4. Resource 1 fills first at 2 each; a takes
// what b cannot use: 8, not the equal share of 5.
TEST(FairShare, RedistributesWhatOthersCannotUse) {
  FairShare share;
  share.add_resource(10.0);
  share.add_resource(4.0);
  const auto a = add(share, {0});
  const auto b = add(share, {0, 1});
  const auto c = add(share, {1});
  EXPECT_THAT(solve(share), UnorderedElementsAre(a, b, c));
  EXPECT_DOUBLE_EQ(share.rate(a), 8.0);
  EXPECT_DOUBLE_EQ(share.rate(b), 2.0);
  EXPECT_DOUBLE_EQ(share.rate(c), 2.0);
  EXPECT_EQ(share.bottleneck(a), 0u);
  EXPECT_EQ(share.bottleneck(b), 1u);
  EXPECT_DOUBLE_EQ(share.load(0), 10.0);
}

// The same, c gone: b is held at 4 by resource 1 and a gets 6 (x = 6, y = 4).
TEST(FairShare, RisesAgainAfterADeparture) {
  FairShare share;
  share.add_resource(10.0);
  share.add_resource(4.0);
  const auto a = add(share, {0});
  const auto b = add(share, {0, 1});
  const auto c = add(share, {1});
  share.solve();
  share.remove(c);
  EXPECT_THAT(solve(share), UnorderedElementsAre(a, b));
  EXPECT_DOUBLE_EQ(share.rate(a), 6.0);
  EXPECT_DOUBLE_EQ(share.rate(b), 4.0);
}

// Weights 1 and 3 on capacity 8: rates 2 and 6. With the second bounded at 3, the first gets 5.
TEST(FairShare, WeightsAndBounds) {
  FairShare share;
  share.add_resource(8.0);
  const auto a = add(share, {0}, FairShare::kUnbounded, 1.0);
  const auto b = add(share, {0}, FairShare::kUnbounded, 3.0);
  share.solve();
  EXPECT_DOUBLE_EQ(share.rate(a), 2.0);
  EXPECT_DOUBLE_EQ(share.rate(b), 6.0);
  share.remove(b);
  const auto c = add(share, {0}, 3.0, 3.0);
  EXPECT_EQ(c, b);  // the slot is reused
  share.solve();
  EXPECT_DOUBLE_EQ(share.rate(a), 5.0);
  EXPECT_EQ(share.rate(c), 3.0);
  EXPECT_EQ(share.bottleneck(c), kNone);
}

// A variable of amount 2 loads twice its rate: 2 x + x = 9.
TEST(FairShare, AmountsScaleTheLoad) {
  FairShare share;
  share.add_resource(9.0);
  const std::vector<Demand> twice = {{0, 2.0}};
  const auto a = share.add(twice);
  const auto b = add(share, {0});
  share.solve();
  EXPECT_DOUBLE_EQ(share.rate(a), 3.0);
  EXPECT_DOUBLE_EQ(share.rate(b), 3.0);
}

TEST(FairShare, AClassEqualsItsMembers) {
  FairShare apart;
  FairShare together;
  for (FairShare* share : {&apart, &together}) {
    share->add_resource(10.0);
    share->add_resource(3.0);
  }
  std::vector<FairShare::Variable> members;
  for (int i = 0; i < 5; ++i) {
    members.push_back(add(apart, {0, 1}));
  }
  const auto other_apart = add(apart, {0});
  const auto family = add(together, {0, 1}, FairShare::kUnbounded, 1.0, 5);
  const auto other_together = add(together, {0});
  apart.solve();
  together.solve();
  for (const auto member : members) {
    EXPECT_DOUBLE_EQ(apart.rate(member), together.rate(family));
  }
  EXPECT_DOUBLE_EQ(apart.rate(other_apart), together.rate(other_together));
  EXPECT_DOUBLE_EQ(together.rate(family), 0.6);
}

TEST(FairShare, WithoutDemandsTheRateIsTheBound) {
  FairShare share;
  share.add_resource(1.0);
  const auto bounded = add(share, {}, 7.0);
  const auto free = add(share, {});
  const std::vector<Demand> nothing = {{0, 0.0}};
  const auto zero = share.add(nothing, 2.0);
  share.solve();
  EXPECT_EQ(share.rate(bounded), 7.0);
  EXPECT_EQ(share.rate(free), FairShare::kUnbounded);
  EXPECT_EQ(share.rate(zero), 2.0);
}

TEST(FairShare, ZeroCapacityMeansRateZero) {
  FairShare share;
  share.add_resource(0.0);
  const auto a = add(share, {0});
  EXPECT_THAT(solve(share), ElementsAre(a));
  EXPECT_EQ(share.rate(a), 0.0);
  share.set_capacity(0, 5.0);
  EXPECT_THAT(solve(share), ElementsAre(a));
  EXPECT_EQ(share.rate(a), 5.0);
}

TEST(FairShare, InfiniteCapacityNeverHolds) {
  FairShare share;
  share.add_resource(FairShare::kUnbounded);
  share.add_resource(2.0);
  const auto a = add(share, {0, 1});
  const auto b = add(share, {0}, 9.0);
  share.solve();
  EXPECT_EQ(share.rate(a), 2.0);
  EXPECT_EQ(share.rate(b), 9.0);
}

// A route that crosses a resource twice loads it twice.
TEST(FairShare, ARepeatedResourceCountsTwice) {
  FairShare share;
  share.add_resource(6.0);
  const auto a = add(share, {0, 0});
  const auto b = add(share, {0});
  share.solve();
  EXPECT_DOUBLE_EQ(share.rate(a), 2.0);
  EXPECT_DOUBLE_EQ(share.rate(b), 2.0);
}

TEST(FairShare, ReportsOnlyWhatChanged) {
  FairShare share;
  for (int i = 0; i < 3; ++i) {
    share.add_resource(4.0);
  }
  const auto left = add(share, {0});
  const auto far = add(share, {2});
  share.solve();
  EXPECT_FALSE(share.needs_solve());
  EXPECT_TRUE(solve(share).empty());
  const auto right = add(share, {0});
  EXPECT_TRUE(share.needs_solve());
  EXPECT_THAT(solve(share), UnorderedElementsAre(left, right));
  EXPECT_EQ(share.rate(far), 4.0);
  // One leaves and an equal one arrives at the same timestamp: nobody else notices.
  share.remove(right);
  const auto replacement = add(share, {0});
  EXPECT_THAT(solve(share), ElementsAre(replacement));
}

TEST(FairShare, AddedAndRemovedBeforeTheSolve) {
  FairShare share;
  share.add_resource(4.0);
  const auto a = add(share, {0});
  share.remove(a);
  EXPECT_TRUE(solve(share).empty());
  const auto b = add(share, {0});
  share.remove(b);
  const auto c = add(share, {0});
  EXPECT_THAT(solve(share), ElementsAre(c));
  EXPECT_EQ(share.rate(c), 4.0);
  EXPECT_EQ(share.num_variables(), 1u);
}

}  // namespace
}  // namespace orrery::sim
