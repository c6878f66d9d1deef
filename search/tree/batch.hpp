// SPDX-License-Identifier: Apache-2.0
// Nodes that are evaluated side by side, with the same knowledge, and what became of them. The work
// of a node is estimated from the space alone, in units of about 15 microseconds of processor time:
// it decides how much is in a batch and which nodes are handed out first, never what comes out.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "search/tree/worker.hpp"

namespace orrery::search {

enum class Task : std::uint8_t {
  TryOut,    // plans that may not fit
  Bound,     // groups: their bounds
  Visit,     // nodes: what follows from them, or the time of a plan
  Interval,  // plans that were found: the interval of their times
  Replay,    // plans that were found: whether they fit when memory is replayed
};

// Of groups only the index is set.
struct Batch {
  Task task = Task::Visit;
  Known known;
  std::vector<Node> nodes;
};

// What became of a node of a batch; nothing when the search was stopped before.
struct Done {
  std::optional<Outcomes> outcomes;
  Seconds cpu;     // processor time that it took, where that is asked for
  int thread = 0;  // who did it
};

// What everybody who evaluates nodes looks at; outlives them.
struct Tree {
  const Space& space;
  const std::vector<Group>& groups;
  const std::vector<std::uint64_t>& first_order;  // of each group's members

  std::int64_t micro_batches(const Group& group) const {
    return space.base().batch / (group.micro_batch * group.dp);
  }
  std::uint64_t work_of(Task task, const Node& node) const;
};

inline constexpr Seconds kWorkUnit = Seconds(15e-6);

}  // namespace orrery::search
