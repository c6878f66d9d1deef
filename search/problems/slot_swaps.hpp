// SPDX-License-Identifier: Apache-2.0
// What swaps of two ranks' slots leave of the time of a node's tokens, each in constant time: with
// a slot go its share of its expert's tokens, and of the messages those that are not of its own
// rank.
#pragma once

#include <algorithm>
#include <functional>
#include <vector>

#include "search/problems/expert_placement.hpp"

namespace orrery::search {

// Tokens that stay within groups of ranks, each evenly over the copies of its expert there.
class GroupSwaps {
 public:
  GroupSwaps(const models::RoutedTokens& tokens, const ExpertPlacement& placement, int group)
      : group_(static_cast<std::size_t>(group)) {
    for (std::size_t first = 0; first < placement.size(); first += group_) {
      add_group(tokens, placement, first);
    }
  }

  bool whole() const { return whole_; }  // every group has a copy of every expert
  bool together(std::size_t a, std::size_t b) const { return a / group_ == b / group_; }

  // The swaps that follow are between these two, which are of one group.
  void between(std::size_t a, std::size_t b) {
    a_ = a;
    b_ = b;
    most_ = Load();
    for (std::size_t rank = 0; rank < loads_.size(); ++rank) {
      if (rank != a && rank != b) {
        most_.raise_to(loads_[rank]);
      }
    }
  }

  // `one` of the first for `other` of the second.
  Seconds after(const ExpertProblem& node, int one, int other) const {
    const auto from = static_cast<std::size_t>(one);
    const auto to = static_cast<std::size_t>(other);
    const std::vector<double>& share = shares_[a_ / group_];
    const double moved = share[to] - share[from];
    Load most = most_;
    most.raise_to(loads_[a_].with(moved, own_[a_][to] - own_[a_][from]));
    most.raise_to(loads_[b_].with(-moved, own_[b_][from] - own_[b_][to]));
    const Seconds exchange =
        node.latency + std::max(most.sent, most.got) * node.token_bytes / node.inside_bandwidth;
    return node.compute_passes * most.received * node.token_time + node.exchanges * exchange +
           node.other;
  }

 private:
  // Tokens that a rank computes, sends to others and gets from them.
  struct Load {
    double received = 0;
    double sent = 0;
    double got = 0;
    void add(double share, double own) {
      received += share;
      sent -= own;
      got += share - own;
    }
    Load with(double share, double own) const {
      Load load = *this;
      load.add(share, own);
      return load;
    }
    void raise_to(const Load& other) {
      received = std::max(received, other.received);
      sent = std::max(sent, other.sent);
      got = std::max(got, other.got);
    }
  };

  void add_group(const models::RoutedTokens& tokens, const ExpertPlacement& placement,
                 std::size_t first) {
    std::vector<double> share(tokens.front().size());
    std::vector<double> copies(share.size());
    for (std::size_t rank = first; rank < first + group_; ++rank) {
      std::transform(
          tokens[rank].begin(), tokens[rank].end(), share.begin(), share.begin(),
          [](std::int64_t count, double sum) { return sum + static_cast<double>(count); });
      for (const int expert : placement[rank]) {
        copies[static_cast<std::size_t>(expert)] += 1;
      }
    }
    whole_ = whole_ && *std::min_element(copies.begin(), copies.end()) > 0;
    std::transform(share.begin(), share.end(), copies.begin(), share.begin(), std::divides<>());
    for (std::size_t rank = first; rank < first + group_; ++rank) {
      std::vector<double> own(share.size());
      std::transform(tokens[rank].begin(), tokens[rank].end(), copies.begin(), own.begin(),
                     [](std::int64_t count, double of) { return static_cast<double>(count) / of; });
      Load load;
      for (const std::int64_t count : tokens[rank]) {
        load.sent += static_cast<double>(count);
      }
      for (const int expert : placement[rank]) {
        load.add(share[static_cast<std::size_t>(expert)], own[static_cast<std::size_t>(expert)]);
      }
      own_.push_back(std::move(own));
      loads_.push_back(load);
    }
    shares_.push_back(std::move(share));
  }

  std::size_t group_;
  bool whole_ = true;
  std::vector<std::vector<double>> shares_;  // of each group, of an expert's copies
  std::vector<std::vector<double>> own_;     // of a copy's share, what is of this rank
  std::vector<Load> loads_;
  Load most_;
  std::size_t a_ = 0;
  std::size_t b_ = 0;
};

// The time that place_tokens finds for the ranks of a node after a swap, or less: without
// gradients, and rounded otherwise.
class SwapTimes {
 public:
  SwapTimes(const ExpertProblem& node, const models::RoutedTokens& tokens,
            const ExpertPlacement& placement)
      : node_(node),
        anywhere_(tokens, placement, node.routing.ranks),
        near_(tokens, placement, node.expert_parallel) {
    std::vector<int> copies(static_cast<std::size_t>(node.routing.experts));
    for (const std::vector<int>& slots : placement) {
      for (const int expert : slots) {
        ++copies[static_cast<std::size_t>(expert)];
      }
    }
    const int groups = node.routing.ranks / node.expert_parallel;
    can_be_whole_ =
        std::all_of(copies.begin(), copies.end(), [&](int count) { return count == groups; });
  }

  void between(std::size_t a, std::size_t b) {
    anywhere_.between(a, b);
    near_.between(a, b);
    together_ = near_.together(a, b);
  }

  // Tokens may stay in their static groups where these are whole after the swap: one copy of every
  // expert in each fills its slots.
  Seconds after(int one, int other) const {
    const Seconds time = anywhere_.after(node_, one, other);
    if (near_.whole()) {
      return together_ ? std::min(time, near_.after(node_, one, other)) : time;
    }
    return can_be_whole_ && !together_ ? Seconds() : time;
  }

 private:
  const ExpertProblem& node_;
  GroupSwaps anywhere_;
  GroupSwaps near_;
  bool together_ = false;
  bool can_be_whole_ = false;
};

}  // namespace orrery::search
