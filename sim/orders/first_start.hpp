// SPDX-License-Identifier: Apache-2.0
// Which of some devices can start first: a tournament over their earliest starts. Of equal starts
// the first device wins. O(log devices) for a change, O(1) for the answer.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace orrery::sim {

class FirstStart {
 public:
  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

  explicit FirstStart(std::size_t devices) {
    while (leaves_ < devices) {
      leaves_ *= 2;
    }
    start_.assign(2 * leaves_, kNever);
  }

  void set(std::size_t device, std::int64_t start) {
    std::size_t node = leaves_ + device;
    start_[node] = start;
    for (node /= 2; node > 0; node /= 2) {
      const std::int64_t earliest = std::min(start_[2 * node], start_[2 * node + 1]);
      if (start_[node] == earliest) {
        return;
      }
      start_[node] = earliest;
    }
  }

  bool none() const { return start_[1] == kNever; }
  std::size_t first() const {
    std::size_t node = 1;
    while (node < leaves_) {
      node = 2 * node + (start_[2 * node] > start_[2 * node + 1] ? 1U : 0U);
    }
    return node - leaves_;
  }

 private:
  std::size_t leaves_ = 1;
  std::vector<std::int64_t> start_;  // of the nodes of a tree, root 1
};

}  // namespace orrery::sim
