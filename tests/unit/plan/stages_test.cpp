// SPDX-License-Identifier: Apache-2.0
// Balanced cuts against all cuts there are.
#include "plan/stages.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "plan/stage/chain_work.hpp"
#include "tests/unit/plan/plan_fixture.hpp"

namespace orrery::plan {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Layers of 10 between an embedding and a head.
std::vector<std::int64_t> layers_between(int layers, std::int64_t embedding, std::int64_t head) {
  std::vector<std::int64_t> ps(static_cast<std::size_t>(layers) + 2, 10);
  ps.front() = embedding;
  ps.back() = head;
  return ps;
}

struct Extremes {
  std::int64_t largest = 0;
  std::int64_t smallest = 0;
  bool operator==(const Extremes&) const = default;
};

Extremes extremes_of(const std::vector<std::int64_t>& work, const std::vector<int>& cut) {
  std::vector<std::int64_t> loads;
  std::size_t position = 0;
  for (const int count : cut) {
    loads.push_back(0);
    for (int index = 0; index < count; ++index) {
      loads.back() += work[position++];
    }
  }
  EXPECT_EQ(position, work.size());
  const auto [smallest, largest] = std::minmax_element(loads.begin(), loads.end());
  return {*largest, *smallest};
}

// Of all cuts of positions from `cut`'s end on: the least largest, then the largest smallest stage.
void search_cuts(const std::vector<std::int64_t>& work, std::size_t stages, std::vector<int>& cut,
                 Extremes& best) {
  const int used = std::accumulate(cut.begin(), cut.end(), 0);
  const int left = static_cast<int>(work.size()) - used;
  if (cut.size() + 1 == stages) {
    cut.push_back(left);
    const Extremes found = extremes_of(work, cut);
    if (best.largest == 0 || found.largest < best.largest ||
        (found.largest == best.largest && found.smallest > best.smallest)) {
      best = found;
    }
    cut.pop_back();
    return;
  }
  const int others = static_cast<int>(stages - cut.size()) - 1;
  for (int count = 1; count <= left - others; ++count) {
    cut.push_back(count);
    search_cuts(work, stages, cut, best);
    cut.pop_back();
  }
}

Extremes best_extremes(const std::vector<std::int64_t>& work, std::size_t stages) {
  Extremes best;
  std::vector<int> cut;
  search_cuts(work, stages, cut, best);
  return best;
}

TEST(BalancedStages, OfEqualLayersAreTheBestOfAll) {
  for (const int layers : {4, 7, 10, 12}) {
    for (const std::int64_t head : {0, 4, 13, 27, 64}) {
      for (std::size_t stages = 1; stages <= 5 && stages <= static_cast<std::size_t>(layers);
           ++stages) {
        const std::vector<std::int64_t> work = layers_between(layers, 1, head);
        EXPECT_EQ(extremes_of(work, balanced_stages(work, static_cast<int>(stages))),
                  best_extremes(work, stages))
            << layers << " layers, head " << head << ", " << stages << " stages";
      }
    }
  }
}

// Also where stages as large as can be lead to positions from which there is no cut.
TEST(BalancedStages, OfAnyBlocksAreTheBestOfAll) {
  std::mt19937 random(7);
  for (int round = 0; round < 6000; ++round) {
    std::vector<std::int64_t> ps(3 + random() % 9);
    for (std::int64_t& one : ps) {
      one = static_cast<std::int64_t>(random() % 30);
    }
    const std::vector<std::int64_t>& work = ps;
    const std::size_t stages = 1 + random() % std::min<std::size_t>(5, ps.size());
    const std::vector<int> cut = balanced_stages(work, static_cast<int>(stages));
    ASSERT_EQ(cut.size(), stages);
    EXPECT_GT(*std::min_element(cut.begin(), cut.end()), 0);
    EXPECT_EQ(extremes_of(work, cut), best_extremes(work, stages)) << "round " << round;
  }
}

// The head is worth three and a half layers. A fill from the left would be 6, 5, 5, 5, 5, 5, 2, 1.
TEST(BalancedStages, SpreadTheSlackAndPutLargerOnesFirst) {
  EXPECT_THAT(balanced_stages(layers_between(32, 1, 35), 8), ElementsAre(5, 5, 5, 5, 4, 4, 4, 2));
  EXPECT_THAT(balanced_stages(layers_between(9, 0, 0), 3), ElementsAre(4, 3, 4));
  EXPECT_THAT(balanced_stages(layers_between(2, 1, 1), 5), IsEmpty());
}

TEST(BalancedStages, AreQuickForDeepNetworks) {
  const std::vector<std::int64_t> work = layers_between(16'381, 3, 77);
  const std::vector<int> cut = balanced_stages(work, 800);
  EXPECT_EQ(extremes_of(work, cut).largest, 210);
  EXPECT_GE(extremes_of(work, cut).smallest, 197);
  const std::vector<std::int64_t> uneven = layers_between(16'381, 3, 7'777);
  EXPECT_EQ(extremes_of(uneven, balanced_stages(uneven, 800)).largest, 7'777);
}

// The device that has the head has fewer layers, in whichever of its stages.
TEST(BalancedStages, DevicesWithSeveralStagesAreBalanced) {
  const std::vector<std::int64_t> work = layers_between(32, 1, 24);
  const std::vector<int> stages = balanced_stages(work, 4);
  const std::vector<std::uint16_t> v = {0, 1, 1, 0};
  const std::vector<int> cut = balance_devices(work, v, stages);
  const auto load = [&](const std::vector<int>& of, std::size_t device) {
    std::int64_t sum = 0;
    std::size_t position = 0;
    for (std::size_t stage = 0; stage < of.size(); ++stage) {
      for (int index = 0; index < of[stage]; ++index) {
        sum += v[stage] == device ? work[position] : 0;
        ++position;
      }
    }
    return sum;
  };
  EXPECT_EQ(std::max(load(cut, 0), load(cut, 1)), 175);  // of 345
  EXPECT_LT(std::max(load(cut, 0), load(cut, 1)), std::max(load(stages, 0), load(stages, 1)));
  EXPECT_EQ(balance_devices(work, std::vector<std::uint16_t>{0, 1, 2, 3}, stages), stages);
}

// Without what a plan says of its own degrees.
TEST(WorkOfChain, IsThatOfOneSequenceOnOneDevice) {
  Plan plan = small_plan();
  const std::vector<std::int64_t> work = work_of_chain(plan);
  ASSERT_EQ(work.size(), plan.network.chain.size());
  EXPECT_EQ(work[1], work[2]);
  EXPECT_LT(work.front(), work[1]);
  plan.micro_batch = 4;
  plan.blocks.front().layout.recompute = Recompute::Full;
  EXPECT_EQ(work_of_chain(plan), work);
  EXPECT_EQ(*std::max_element(work.begin(), work.end()), 1'000'000'000);
  plan.sequence *= 2;  // attention grows faster than the head
  EXPECT_GT(work_of_chain(plan)[1], work[1]);
}

// A sequence that takes longer than time is counted.
TEST(WorkOfChain, IsThatOfFlopsBeyondSimulatedTime) {
  Plan plan = small_plan();
  plan.sequence = 1'000'000'000;
  const std::vector<std::int64_t> work = work_of_chain(plan);
  EXPECT_EQ(work, flops_of_chain(plan));
  EXPECT_EQ(work[1], 1'000'000'000);
  EXPECT_EQ(work.front(), 0);
  EXPECT_LT(work.back(), work[1]);
}

}  // namespace
}  // namespace orrery::plan
