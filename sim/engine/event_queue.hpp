// SPDX-License-Identifier: Apache-2.0
// The event queue: a 4-ary heap of 16-byte entries in the total order (time, node id), so that
// equal times pop in order of node and the outcome never depends on the order of insertion. O(log4
// n) a push and pop; memory is bounded by what is in flight.
#pragma once

#include <cstddef>
#include <vector>

#include "base/sim_time.hpp"
#include "sim/engine/program.hpp"

namespace orrery::sim {

struct Event {
  SimTime time;
  NodeId node = kNone;
  friend bool operator<(const Event& a, const Event& b) {
    return a.time != b.time ? a.time < b.time : a.node < b.node;
  }
  bool operator==(const Event&) const = default;
};
static_assert(sizeof(Event) == 16);

class EventQueue {
 public:
  bool empty() const { return heap_.empty(); }
  std::size_t size() const { return heap_.size(); }
  const Event& top() const { return heap_.front(); }

  void push(Event event) {
    heap_.push_back(event);
    std::size_t hole = heap_.size() - 1;
    while (hole > 0) {
      const std::size_t parent = (hole - 1) / 4;
      if (!(event < heap_[parent])) {
        break;
      }
      heap_[hole] = heap_[parent];
      hole = parent;
    }
    heap_[hole] = event;
  }

  Event pop() {
    const Event top = heap_.front();
    const Event last = heap_.back();
    heap_.pop_back();
    if (!heap_.empty()) {
      sift_down(last);
    }
    return top;
  }

 private:
  // Fills the hole at the root with `event`.
  void sift_down(Event event) {
    const std::size_t size = heap_.size();
    std::size_t hole = 0;
    for (std::size_t child = 1; child < size; child = 4 * hole + 1) {
      const std::size_t end = child + 4 < size ? child + 4 : size;
      std::size_t least = child;
      for (++child; child < end; ++child) {
        least = heap_[child] < heap_[least] ? child : least;
      }
      if (!(heap_[least] < event)) {
        break;
      }
      heap_[hole] = heap_[least];
      hole = least;
    }
    heap_[hole] = event;
  }

  std::vector<Event> heap_;
};

}  // namespace orrery::sim
