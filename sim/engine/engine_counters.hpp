// SPDX-License-Identifier: Apache-2.0
// Counters of a run and the nodes that wait for nothing else. A node passes when all the counters
// it waits for are high enough at the moment it is checked; nodes are checked in order of id, and
// each start may change what the next one sees. A waiting node is filed under one counter that is
// too low, so that a change looks only at nodes it may release.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "sim/engine/program.hpp"

namespace orrery::sim {

class CounterGate {
 public:
  explicit CounterGate(const Program& program)
      : program_(program),
        values_(program.counters()),
        waiting_(program.counters().size()),
        released_by_(program.num_nodes(), kNone) {}

  const std::vector<std::int64_t>& values() const { return values_; }
  std::vector<NodeId> take_released_by() { return std::move(released_by_); }
  void arrive(NodeId node) { candidates_.push(node); }

  // The smallest waiting node that passes now; kNone when there is none.
  NodeId next() {
    while (!candidates_.empty()) {
      const NodeId node = candidates_.top();
      candidates_.pop();
      if (passes(node)) {
        return node;
      }
    }
    return kNone;
  }

  void apply_changes(NodeId node, bool at_start) {
    for (const CounterChange& change : program_.counter_changes(node)) {
      if (change.at_start == at_start) {
        values_[change.counter] += change.delta;
        if (change.delta > 0) {
          wake(change.counter, node);
        }
      }
    }
  }

 private:
  using Waiter = std::pair<std::int64_t, NodeId>;  // what the counter must reach
  template <typename T>
  using MinHeap = std::priority_queue<T, std::vector<T>, std::greater<>>;

  bool passes(NodeId node) {
    for (const CounterWait& wait : program_.counter_waits(node)) {
      if (values_[wait.counter] < wait.at_least) {
        waiting_[wait.counter].emplace(wait.at_least, node);
        return false;
      }
    }
    return true;
  }

  void wake(CounterId counter, NodeId changed_by) {
    MinHeap<Waiter>& waiters = waiting_[counter];
    while (!waiters.empty() && waiters.top().first <= values_[counter]) {
      candidates_.push(waiters.top().second);
      released_by_[waiters.top().second] = changed_by;
      waiters.pop();
    }
  }

  const Program& program_;
  std::vector<std::int64_t> values_;
  std::vector<MinHeap<Waiter>> waiting_;
  MinHeap<NodeId> candidates_;
  std::vector<NodeId> released_by_;
};

}  // namespace orrery::sim
