// SPDX-License-Identifier: Apache-2.0
// Which keys of whom the queries of a context rank see through a window, against a count of them
// all, and what that makes of the kernels of a ring.
#include "plan/block/ring_parts.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "plan/block/cost.hpp"
#include "tests/unit/plan/plan_fixture.hpp"

namespace orrery::plan {
namespace {

// The rank that holds a position, counted from the beginning of the sequence.
std::int64_t holder(const RingShape& shape, std::int64_t position) {
  const std::int64_t slice = position % (shape.tokens * shape.ranks);
  if (!shape.zigzag) {
    return slice / shape.tokens;
  }
  const std::int64_t chunk = slice / (shape.tokens / 2);
  return std::min(chunk, 2 * shape.ranks - 1 - chunk);
}

std::vector<RingPart> counted(const RingShape& shape, std::int64_t rank) {
  std::vector<RingPart> parts(static_cast<std::size_t>(shape.ranks));
  for (std::int64_t query = shape.earlier; query < shape.earlier + shape.tokens * shape.ranks;
       ++query) {
    if (holder(shape, query) != rank) {
      continue;
    }
    std::vector<double> seen(parts.size());
    for (std::int64_t key = std::max<std::int64_t>(0, query - shape.window + 1); key <= query;
         ++key) {
      ++seen[static_cast<std::size_t>(holder(shape, key))];
    }
    for (std::size_t part = 0; part < parts.size(); ++part) {
      parts[part].pairs += seen[part];
    }
  }
  return parts;
}

TEST(RingPartsTest, PairsAreThoseOfACountOfThemAll) {
  std::mt19937 random(7);  // NOLINT(cert-msc32-c,cert-msc51-cpp): the same cases every time
  const auto upto = [&](std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(1, most)(random);
  };
  for (int trial = 0; trial < 200; ++trial) {
    RingShape shape;
    shape.zigzag = trial % 2 == 0;
    shape.ranks = 1 + upto(5);
    shape.tokens = 2 * upto(12);
    shape.earlier = (trial % 3) * shape.tokens * shape.ranks;
    shape.window = upto(shape.earlier + shape.tokens * shape.ranks);
    double all = 0;
    double most = 0;
    for (std::int64_t rank = 0; rank < shape.ranks; ++rank) {
      const std::map<std::int64_t, RingPart> seen = ring_parts(shape, rank);
      const std::vector<RingPart> truth = counted(shape, rank);
      double sum = 0;
      for (std::size_t part = 0; part < truth.size(); ++part) {
        const auto found = seen.find(static_cast<std::int64_t>(part));
        EXPECT_EQ(found != seen.end(), truth[part].pairs > 0)
            << trial << ' ' << rank << ' ' << part;
        const RingPart there = found == seen.end() ? RingPart() : found->second;
        EXPECT_EQ(there.pairs, truth[part].pairs) << trial << ' ' << rank << ' ' << part;
        EXPECT_EQ(there.rows > 0, truth[part].pairs > 0);
        EXPECT_LE(there.rows, shape.tokens);
        sum += there.pairs;
      }
      all += sum;
      most = std::max(most, sum);
    }
    EXPECT_EQ(most_pairs(shape), most);
    if (shape.earlier == 0) {  // every query its window, but for the first ones
      const double window = static_cast<double>(shape.window);
      EXPECT_EQ(all, static_cast<double>(shape.tokens * shape.ranks) * window -
                         window * (window - 1) / 2);
    }
  }
}

constexpr std::int64_t kRanksOfRing = 8;

Plan windowed_ring(std::int64_t window, ContextParallel kind, bool zigzag) {
  models::NetworkSpec spec = small_spec();
  spec.sequence = 32768;
  spec.sliding_window = window;
  BlockPlan layout;
  layout.cp = kRanksOfRing;
  layout.context = kind;
  layout.zigzag = zigzag;
  Plan plan = one_replica(spec, layout);
  plan.batch = plan.micro_batch = 1;
  plan.sequence = spec.sequence;
  check_plan(plan, "test");
  return plan;
}

struct AttentionSum {
  double time = 0;
  double flops = 0;
};

AttentionSum attention_of(const Plan& plan) {
  const BlockCosts costs(plan);
  const BlockSteps steps =
      costs.steps_of(plan.network.chain[1], plan.layout_of(1), plan.micro_batch);
  AttentionSum sum;
  for (const Step& step : steps.forward) {
    if (!step.collective && step.cost_class == CostClass::Attention) {
      sum.time += step.time.value();
      sum.flops += step.flops.value();
    }
  }
  return sum;
}

// However keys get to a rank it sees as many: what a ring computes more are the starts and merges
// of the parts within the window, of which there are few.
TEST(RingPartsTest, ARingComputesThePairsOfAGather) {
  for (const bool zigzag : {true, false}) {
    for (const std::int64_t window : {512, 2048, 6000}) {
      const AttentionSum ring = attention_of(windowed_ring(window, ContextParallel::Ring, zigzag));
      const AttentionSum gather =
          attention_of(windowed_ring(window, ContextParallel::AllGather, zigzag));
      const AttentionSum full = attention_of(windowed_ring(0, ContextParallel::Ring, zigzag));
      EXPECT_NEAR(ring.flops / gather.flops, 1, 0.005) << window << ' ' << zigzag;
      EXPECT_LT(ring.time, 0.75 * full.time) << window << ' ' << zigzag;
    }
  }
}

// A window of all but one of the positions leaves out next to nothing. Half of the parts of a
// zig-zag ring are seen by half of the queries, in kernels of fewer rows and more keys.
TEST(RingPartsTest, AWideWindowCostsWhatNoneDoes) {
  for (const ContextParallel kind : {ContextParallel::Ring, ContextParallel::AllGather}) {
    for (const bool zigzag : {true, false}) {
      const AttentionSum wide = attention_of(windowed_ring(32767, kind, zigzag));
      const AttentionSum none = attention_of(windowed_ring(0, kind, zigzag));
      const double fewer_rows = kind == ContextParallel::Ring && zigzag ? 0.15 : 0.03;
      EXPECT_NEAR(wide.time / none.time, 1, fewer_rows) << static_cast<int>(kind) << ' ' << zigzag;
      EXPECT_NEAR(wide.flops / none.flops, 1, 0.001) << static_cast<int>(kind) << ' ' << zigzag;
    }
  }
}

}  // namespace
}  // namespace orrery::plan
