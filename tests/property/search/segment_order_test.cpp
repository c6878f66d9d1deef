// SPDX-License-Identifier: Apache-2.0
// DIP's order of segments against all orders, closed forms and lower bounds.
#include "search/problems/segment_order.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <numeric>
#include <vector>

#include "tests/property/search/tiny_chains.hpp"

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

// A forward or backward of a micro-batch of a segment on a rank.
struct TinyPass {
  bool forward = true;
  int segment = 0;
  int micro_batch = 0;
  int rank = 0;
  double start = 0;
  double end = -1;  // not yet run
};

// The greedy rule with all passes in one list, looked through before every decision.
class TinyIteration {
 public:
  TinyIteration(const SegmentProblem& problem, const std::vector<int>& order)
      : problem_(problem), order_(order) {
    for (int s = 0; s < static_cast<int>(order.size()); ++s) {
      for (int k = 0; k < problem.segments[static_cast<std::size_t>(s)].micro_batches; ++k) {
        for (int rank = 0; rank < problem.ranks; ++rank) {
          passes_.push_back({true, s, k, rank});
          passes_.push_back({false, s, k, rank});
        }
      }
    }
  }

  double makespan() {
    double end = 0;
    for (std::size_t i = 0; i < passes_.size(); ++i) {
      TinyPass* first = nullptr;
      for (int rank = 0; rank < problem_.ranks; ++rank) {
        TinyPass* const next = next_on(rank);
        first = next != nullptr && (first == nullptr || next->start < first->start) ? next : first;
      }
      if (first == nullptr) {
        return std::numeric_limits<double>::infinity();
      }
      const Segment& segment = problem_.segments[static_cast<std::size_t>(first->segment)];
      first->end = first->start + (first->forward ? segment.forward : segment.backward);
      last_on_[first->rank] = first;
      end = std::max(end, first->end);
    }
    return end;
  }

 private:
  int count(int segment) const {
    return problem_.segments[static_cast<std::size_t>(segment)].micro_batches;
  }
  int place(int segment) const {
    return static_cast<int>(std::find(order_.begin(), order_.end(), segment) - order_.begin());
  }

  // Whether `pass` waits for `other`: the same micro-batch in the same segment, or what overlaps it
  // or lies before it in the segment that feeds it, forward, or that it feeds, backward.
  bool waits(const TinyPass& pass, const TinyPass& other) const {
    const int last = problem_.ranks - 1;
    const auto feeds = [&](int from, int to) {
      return problem_.segments[static_cast<std::size_t>(to)].after == from;
    };
    const bool up_to = std::int64_t{other.micro_batch} * count(pass.segment) <
                       (std::int64_t{pass.micro_batch} + 1) * count(other.segment);
    const bool same = other.segment == pass.segment && other.micro_batch == pass.micro_batch;
    if (pass.forward) {
      return other.forward && ((same && other.rank == pass.rank - 1) ||
                               (pass.rank == 0 && other.rank == last && up_to &&
                                feeds(other.segment, pass.segment)));
    }
    return (same && other.forward && other.rank == pass.rank) ||
           (same && !other.forward && other.rank == pass.rank + 1) ||
           (!other.forward && pass.rank == last && other.rank == 0 && up_to &&
            feeds(pass.segment, other.segment));
  }

  // Micro-batches of a segment in turn, each after what it waits for; never where that is not
  // known.
  double arrival(const TinyPass& pass) const {
    double at = 0;
    for (const TinyPass& other : passes_) {
      const bool earlier = other.forward == pass.forward && other.segment == pass.segment &&
                           other.rank == pass.rank && other.micro_batch < pass.micro_batch;
      if (earlier || waits(pass, other)) {
        at = other.end < 0 ? std::numeric_limits<double>::infinity() : std::max(at, other.end);
      }
      if (std::isinf(at)) {
        return at;
      }
    }
    return at;
  }

  // The first that can start, of equal ones that of the segment in front.
  TinyPass* head(bool forward, int rank) {
    TinyPass* best = nullptr;
    for (TinyPass& pass : passes_) {
      if (pass.forward != forward || pass.rank != rank || pass.end >= 0) {
        continue;
      }
      const TinyPass* const before = last_on_[rank];
      pass.start = std::max(arrival(pass), before == nullptr ? 0 : before->end);
      const bool first = best == nullptr || pass.start < best->start ||
                         (pass.start == best->start && place(pass.segment) < place(best->segment));
      best = !std::isinf(pass.start) && first ? &pass : best;
    }
    return best;
  }

  TinyPass* next_on(int rank) {
    int live = 0;
    for (const TinyPass& pass : passes_) {
      live += pass.rank == rank && pass.end >= 0 ? (pass.forward ? 1 : -1) : 0;
    }
    TinyPass* const forward = problem_.cap > 0 && live >= problem_.cap ? nullptr : head(true, rank);
    TinyPass* const backward = head(false, rank);
    if (forward == nullptr || backward == nullptr) {
      return forward == nullptr ? backward : forward;
    }
    if (forward->start != backward->start) {
      return forward->start < backward->start ? forward : backward;
    }
    const TinyPass* const before = last_on_[rank];
    return before != nullptr && before->forward ? backward : forward;
  }

  const SegmentProblem& problem_;
  const std::vector<int>& order_;
  std::vector<TinyPass> passes_;
  std::map<int, TinyPass*> last_on_;  // by rank
};

TEST(SegmentOrder, SearchEqualsBruteForce) {
  EXPECT_TRUE(rc::check([] {
    SegmentProblem problem{evenly(1, 4), 0, {}};
    const int count = evenly(1, 4);
    double work = 0;
    for (int s = 0; s < count; ++s) {
      Segment segment;
      segment.forward = evenly(1, 6);
      segment.backward = evenly(1, 9);
      segment.micro_batches = evenly(1, 7);
      segment.after = s > 0 && evenly(0, 2) == 0 ? s - 1 : -1;
      work += segment.micro_batches * (segment.forward + segment.backward);
      problem.segments.push_back(segment);
    }
    problem.cap = evenly(0, 2) * evenly(6, 20);
    std::vector<int> order(problem.segments.size());
    std::iota(order.begin(), order.end(), 0);
    const double given = TinyIteration(problem, order).makespan();
    double best = given;
    do {
      best = std::min(best, TinyIteration(problem, order).makespan());
    } while (std::next_permutation(order.begin(), order.end()));
    const SegmentOrder found = search_segment_order(problem, 100);
    RC_ASSERT(found.given == given);
    RC_ASSERT(found.makespan == best);
    RC_ASSERT((std::isinf(best) || TinyIteration(problem, found.order).makespan() == best));
    RC_ASSERT(best >= work);
  }));
}

}  // namespace
}  // namespace orrery::search
