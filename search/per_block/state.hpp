// SPDX-License-Identifier: Apache-2.0
// What the per-block search knows between two batches: what is open, the best plans so far, what
// was counted. Nodes are numbered, so that their order is total: a state that was written and read
// back goes on alike. Shares and paths that nodes have in common are written once.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "base/bytes.hpp"
#include "search/per_block/found.hpp"
#include "search/per_block/node_bytes.hpp"
#include "search/per_block/search.hpp"

namespace orrery::search {

class PerBlockState {
 public:
  explicit PerBlockState(FoundPlans plans) : found(std::move(plans)) {}

  double best() const {
    return found.empty() ? std::numeric_limits<double>::infinity() : found.best().value();
  }
  // No plan is faster.
  double lower_bound() const {
    const double next = open.empty() ? best() : open.top().bound;
    return std::min({next, closed, best()});
  }
  ProgressReport report() const {
    const double gap = found.empty() ? 1.0 : 1.0 - lower_bound() / best();
    return {result.outcome.simulated, Seconds(best()), gap, Seconds(lower_bound())};
  }
  void push(PerBlockNode node) {
    node.number = numbered++;
    open.push(std::move(node));
  }
  PerBlockNode pop() {
    PerBlockNode node = open.top();
    open.pop();
    return node;
  }

  void write(ByteWriter& out) const;
  // Into a state that has not begun. Error where it cannot be one of this space.
  void read(ByteReader& in, const PerBlockSpace& space, const CostsOf& costs_of);

  FoundPlans found;
  PerBlockQueue open;
  double closed = std::numeric_limits<double>::infinity();  // least bound of what is not open
  std::uint64_t numbered = 0;
  bool seeded = false;         // neighbours of the homogeneous plans were simulated
  bool looked_beside = false;  // and, at the end, drafts of schedules beside the space
  PerBlockOutcome result;      // its counts
};

}  // namespace orrery::search
