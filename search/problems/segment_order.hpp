// SPDX-License-Identifier: Apache-2.0
// DIP's order of segments: every segment of a module is one pass over all ranks and back; ranks run
// forwards and backwards from two queues ordered by the priority of the segments, alternating where
// both could start, forwards only while memory is free. Which priorities are best is searched by
// Monte-Carlo tree search, a level of the tree for each place in the order. Deterministic.
#pragma once

#include <vector>

namespace orrery::search {

struct Segment {
  double forward = 0;  // seconds of a micro-batch on one rank
  double backward = 0;
  int micro_batches = 1;
  int after = -1;  // the segment whose outputs it reads; -1: none
};

struct SegmentProblem {
  int ranks = 1;
  int cap = 0;  // forwards without backward that a rank holds; 0: no limit
  std::vector<Segment> segments;
};

// Seconds of one iteration with segments preferred in this order; infinite when the cap stops it.
// O(passes x segments x ranks).
double makespan_in_order(const SegmentProblem& problem, const std::vector<int>& order);

struct SegmentOrder {
  std::vector<int> order;
  double makespan = 0;
  double given = 0;  // with segments in the order of the problem
};
// At most `rollouts` orders are tried; never worse than the given one.
SegmentOrder search_segment_order(const SegmentProblem& problem, int rollouts);

}  // namespace orrery::search
