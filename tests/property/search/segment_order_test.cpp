// SPDX-License-Identifier: Apache-2.0
// DIP's order of segments against all orders, closed forms and lower bounds.
#include "search/problems/segment_order.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace orrery::search {
namespace {

// One module in one segment is 1F1B: (m + p - 1)(f + b); the greedy rule loses little with room for
// p micro-batches alone.
TEST(SegmentOrder, OneSegmentIsOneForwardOneBackward) {
  for (const int ranks : {1, 2, 4, 8}) {
    for (const int count : {1, ranks, 3 * ranks}) {
      const SegmentProblem tight{ranks, ranks, {{2, 3, count}}};
      EXPECT_LE(makespan_in_order(tight, {0}), (count + ranks - 1) * 5 * 1.02);
      for (const int cap : {0, 2 * ranks}) {
        const SegmentProblem problem{ranks, cap, {{2, 3, count}}};
        EXPECT_EQ(makespan_in_order(problem, {0}), (count + ranks - 1) * 5) << ranks << " " << cap;
      }
    }
  }
  EXPECT_TRUE(std::isinf(makespan_in_order({1, 1, {{1, 1, 1}, {1, 1, 1, 0}}}, {0, 1})));
}

// Equal segments of one module: never above one segment of all its work, and on one rank the work.
TEST(SegmentOrder, SegmentsShortenTheFill) {
  for (const int ranks : {1, 2, 4}) {
    const SegmentProblem whole{ranks, 0, {{4, 8, 3 * ranks}}};
    const SegmentProblem halves{ranks, 0, {{2, 4, 3 * ranks}, {2, 4, 3 * ranks, 0}}};
    const double one = makespan_in_order(whole, {0});
    const double two = search_segment_order(halves, 50).makespan;
    EXPECT_LE(two, one);
    EXPECT_GE(two, 3 * ranks * 12 + (ranks - 1) * 6);  // interleaved 1F1B
    if (ranks == 1) {
      EXPECT_EQ(two, one);
    }
  }
}

TEST(SegmentOrder, SearchEqualsBruteForce) {
  EXPECT_TRUE(rc::check([] {
    SegmentProblem problem{*rc::gen::inRange(1, 4), 0, {}};
    const int count = *rc::gen::inRange(1, 4);
    double work = 0;
    for (int s = 0; s < count; ++s) {
      Segment segment;
      segment.forward = *rc::gen::inRange(1, 6);
      segment.backward = *rc::gen::inRange(1, 9);
      segment.micro_batches = *rc::gen::inRange(1, 7);
      segment.after = s > 0 && *rc::gen::inRange(0, 2) == 0 ? s - 1 : -1;
      work += segment.micro_batches * (segment.forward + segment.backward);
      problem.segments.push_back(segment);
    }
    problem.cap = *rc::gen::inRange(0, 2) * *rc::gen::inRange(6, 20);
    std::vector<int> order(problem.segments.size());
    std::iota(order.begin(), order.end(), 0);
    const double given = makespan_in_order(problem, order);
    double best = given;
    do {
      best = std::min(best, makespan_in_order(problem, order));
    } while (std::next_permutation(order.begin(), order.end()));
    const SegmentOrder found = search_segment_order(problem, 100);
    RC_ASSERT(found.given == given);
    RC_ASSERT(found.makespan == best);
    RC_ASSERT((std::isinf(best) || makespan_in_order(problem, found.order) == best));
    RC_ASSERT(best >= work);
  }));
}

}  // namespace
}  // namespace orrery::search
