// SPDX-License-Identifier: Apache-2.0
// What a best-first search knows between two batches: groups and nodes that are still open, each
// with its bound, the best plans so far, and what was counted. It forms batches of the nodes with
// the least bounds, each about an eighth of the work before it, and takes in their outcomes in
// order, so that it goes through the same states whoever evaluates them and however fast. All
// orders are total: a frontier that was written and read back goes on alike.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <queue>
#include <set>
#include <vector>

#include "base/bytes.hpp"
#include "search/tree/batch.hpp"

namespace orrery::search {

class Frontier {
 public:
  // What the tree refers to outlives this. `wanted`: how many of the fastest plans it looks for.
  Frontier(const Tree& tree, double gap_fraction, int top, std::size_t wanted = 1);

  // Plans that are likely to fit, spread over the groups, so that there is an answer early: of each
  // the thriftiest and a fast one. The branch and bound passes over them later.
  Batch seeds();
  Batch groups() const;
  // The next nodes, which leave the frontier.
  Batch next();
  // What was not evaluated goes back; a group that was not bounded gets the roofline.
  void take(const Batch& batch, const std::vector<Done>& done);
  void put_back(const Batch& batch);

  bool has_work() const { return next_bound() < cutoff(); }
  // Infinite while nothing fits.
  Seconds best_time() const;
  // Of the slowest of the wanted plans; infinite while fewer fit.
  Seconds last_wanted() const;
  // No plan is faster.
  Seconds lower_bound() const { return std::min(next_bound(), best_time()); }
  double gap() const;
  // Plans whose bounds leave it open whether they win.
  std::int64_t num_unexplored() const;
  std::int64_t num_simulated() const { return simulated_; }
  std::int64_t num_infeasible() const { return infeasible_; }
  std::uint64_t work() const { return work_; }  // of the nodes that were visited
  // By categories, and of those that fit by them when they are replayed.
  const Overflow& closest() const { return closest_; }
  const Overflow& closest_replayed() const { return closest_replayed_; }
  struct Ranked {
    Node node;
    Seconds time;
  };
  const std::vector<Ranked>& ranked() const { return ranked_; }  // best first

  // Everything that the batches so far have changed; groups are bounded.
  void write(ByteWriter& out) const;
  // Into a frontier that has not begun. Error when it cannot be one of this space.
  void read(ByteReader& in);

 private:
  template <typename T>
  class MinHeap : public std::priority_queue<T, std::vector<T>, std::greater<>> {
   public:
    const std::vector<T>& all() const { return this->c; }  // in no order
  };

  void push(const Node& node) { (node.is_plan() ? plans_ : nodes_).push(node); }
  // The heap that holds the least node; not both are empty.
  MinHeap<Node>& least();
  void add_seeds(std::uint32_t group, std::vector<Node>& seeds);
  Seconds cutoff() const;
  Seconds next_bound() const;
  void take(Task task, const Node& node, const Outcomes& outcomes);
  void take_back(Task task, const Node& node);
  std::int64_t num_counted(const Outcomes::Run& run) const;
  void rank(const Ranked& found);
  std::int64_t unseeded_below(const Node& node, std::uint64_t zeros) const;
  std::int64_t unseeded(std::uint64_t first, std::uint64_t count) const;

  Tree tree_;
  const Space& space_;
  const std::vector<Group>& groups_;
  const std::vector<std::uint64_t>& first_order_;
  double gap_fraction_;
  std::size_t keep_;
  std::size_t wanted_;
  bool bounded_ = false;            // nodes_ began with all groups
  std::set<std::uint64_t> seeded_;  // evaluated before the search proper
  MinHeap<Node> nodes_;             // groups, too, but no plans
  MinHeap<Node> plans_;
  std::uint64_t work_ = 0;  // of the nodes that were visited
  std::vector<Ranked> ranked_;
  Overflow closest_;
  Overflow closest_replayed_;
  std::int64_t simulated_ = 0;
  std::int64_t infeasible_ = 0;
};

}  // namespace orrery::search
