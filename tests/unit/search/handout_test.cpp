// SPDX-License-Identifier: Apache-2.0
// Every item is handed out once, classes stay together, long ones go first, and what travels
// together is no more than a share of what is left.
#include "search/tree/handout.hpp"

#include <gtest/gtest.h>

#include <set>

namespace orrery::search {
namespace {

TEST(Handout, EveryItemOnce) {
  std::vector<Handout::Item> items;
  for (std::uint64_t index = 0; index < 50; ++index) {
    items.push_back({index % 7, 1 + index % 3});
  }
  Handout handout(items, 3);
  std::set<std::size_t> taken;
  std::size_t count = 0;
  for (int thread = 0;; thread = (thread + 1) % 3) {
    const std::vector<std::size_t> some = handout.take_some(thread, 4);
    if (some.empty()) {
      break;
    }
    count += some.size();
    taken.insert(some.begin(), some.end());
  }
  EXPECT_EQ(count, items.size());
  EXPECT_EQ(taken.size(), items.size());
  EXPECT_FALSE(handout.take(0).has_value());
  EXPECT_EQ(handout.share(), 0);
}

// Class 0 belongs to thread 0, class 1 to thread 1; the longest item of class 2 (thread 0) is
// longest.
TEST(Handout, OwnClassesInOrderThenTheEndOfTheLongest) {
  Handout handout({{0, 1}, {0, 2}, {1, 1}, {2, 9}, {2, 1}}, 2);
  EXPECT_EQ(handout.take(0), 3U);
  EXPECT_EQ(handout.take(1), 2U);
  EXPECT_EQ(handout.take(1), 1U);  // of class 0, which has most work left, from its end
  EXPECT_EQ(handout.take(0), 4U);
  EXPECT_EQ(handout.take(0), 0U);
  EXPECT_FALSE(handout.take(1).has_value());
}

TEST(Handout, DeliveriesShrinkTowardsTheEnd) {
  Handout handout(std::vector<Handout::Item>(64, {5, 10}), 2);
  EXPECT_EQ(handout.share(), 160);  // a half of a thread's half of 640
  EXPECT_EQ(handout.take_some(1, 1000).size(), 16U);
  EXPECT_EQ(handout.take_some(0, 50).size(), 5U);
  std::size_t last = 0;
  for (std::vector<std::size_t> some = handout.take_some(0, 1000); !some.empty();
       some = handout.take_some(0, 1000)) {
    last = some.size();
  }
  EXPECT_EQ(last, 1U);
}

TEST(Handout, NothingAfterAStop) {
  Handout handout(std::vector<Handout::Item>(4, {5, 10}), 2);
  handout.stop();
  EXPECT_FALSE(handout.take(0).has_value());
  EXPECT_TRUE(handout.take_some(1, 100).empty());
}

}  // namespace
}  // namespace orrery::search
