// SPDX-License-Identifier: Apache-2.0
// What the search of a mixed cluster knows between two batches: what is open, the best plans so
// far, what was counted. Nodes are numbered, so that their order is total: a state that was written
// and read back goes on alike.
#pragma once

#include <cstdint>
#include <queue>
#include <vector>

#include "base/bytes.hpp"
#include "search/mixed/search.hpp"
#include "search/mixed/worker.hpp"

namespace orrery::search {

struct MixedState {
  struct Ranked {
    MixedNode node;
    Seconds time;
  };
  struct Later {
    bool operator()(const MixedNode& a, const MixedNode& b) const {
      return a.bound != b.bound ? a.bound > b.bound : a.sequence > b.sequence;
    }
  };

  // Also to be looked at in no order: all of a large one, one after the other, takes seconds.
  struct Heap : std::priority_queue<MixedNode, std::vector<MixedNode>, Later> {
    const std::vector<MixedNode>& nodes() const { return c; }
  };

  void push(MixedNode node) {
    node.sequence = ++nodes;
    heap.push(node);
  }

  // Among the best, of which `most` are kept; the first of equal times stays in front.
  void rank(const Ranked& found, std::size_t most);

  void write(ByteWriter& out) const;
  // Into a state that has not begun. Error where it cannot be one of the worker's space.
  void read(ByteReader& in, MixedWorker& worker);

  Heap heap;
  std::vector<MixedNode> roots;
  std::vector<Ranked> ranked;  // best first
  std::int64_t nodes = 0;      // numbered so far
  std::uint64_t work = 0;      // of the nodes in batches
  ByteCount least_excess;
  MixedOutcome outcome;  // its counts
};

}  // namespace orrery::search
