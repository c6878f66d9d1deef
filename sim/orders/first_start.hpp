// SPDX-License-Identifier: Apache-2.0
// Which of some devices can start first: a tournament over their earliest starts. Of equal starts
// the first device wins. O(log devices) for a change, without branches that nobody
// could foresee; O(1) for the answer.
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
    nodes_.assign(2 * leaves_, {kNever, 0});
    for (std::size_t node = leaves_; node < nodes_.size(); ++node) {
      nodes_[node].device = node - leaves_;
    }
  }

  void set(std::size_t device, std::int64_t start) {
    std::size_t node = leaves_ + device;
    Node first{start, device};
    nodes_[node] = first;
    while (node > 1) {
      const Node& beside = nodes_[node ^ 1];
      const auto right = static_cast<std::int64_t>(node & 1);  // wins only when earlier
      const auto takes = static_cast<std::size_t>(beside.start - right < first.start);
      const std::size_t mask = std::size_t{0} - takes;
      first.start = std::min(first.start, beside.start);
      first.device = (first.device & ~mask) | (beside.device & mask);
      node /= 2;
      nodes_[node] = first;
    }
  }

  bool none() const { return nodes_[1].start == kNever; }
  std::size_t first() const { return nodes_[1].device; }

 private:
  struct Node {
    std::int64_t start = kNever;
    std::size_t device = 0;  // that starts then
  };

  std::size_t leaves_ = 1;
  std::vector<Node> nodes_;  // of a tree, root 1
};

}  // namespace orrery::sim
