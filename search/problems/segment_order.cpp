// SPDX-License-Identifier: Apache-2.0
#include "search/problems/segment_order.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "base/random.hpp"

namespace orrery::search {

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

class Iteration {
 public:
  Iteration(const SegmentProblem& problem, const std::vector<int>& order)
      : problem_(problem),
        ranks_(static_cast<std::size_t>(problem.ranks)),
        priority_(order.size(), 0),
        feeds_(order.size(), -1),
        free_(ranks_, 0.0),
        live_(ranks_, 0),
        forward_last_(ranks_, false) {
    for (std::size_t i = 0; i < order.size(); ++i) {
      priority_[static_cast<std::size_t>(order[i])] = static_cast<int>(i);
      if (problem.segments[i].after >= 0) {
        feeds_[static_cast<std::size_t>(problem.segments[i].after)] = static_cast<int>(i);
      }
      left_ += 2 * problem.segments[i].micro_batches * problem.ranks;
    }
    ends_.assign(2, std::vector<std::vector<double>>(order.size() * ranks_));
  }

  double run() {
    for (; left_ > 0; --left_) {
      std::optional<Candidate> best;
      for (std::size_t rank = 0; rank < ranks_; ++rank) {
        const std::optional<Candidate> next = next_of(rank);
        if (next && (!best || next->start < best->start)) {
          best = next;
        }
      }
      if (!best) {
        return kNever;
      }
      apply(*best);
    }
    return *std::max_element(free_.begin(), free_.end());
  }

 private:
  enum Kind : std::size_t { kForward, kBackward };
  struct Candidate {
    Kind kind = kForward;
    std::size_t segment = 0;
    std::size_t rank = 0;
    double start = 0;
  };

  std::vector<double>& ends(Kind kind, std::size_t segment, std::size_t rank) {
    return ends_[kind][segment * ranks_ + rank];
  }
  // End of the pass of another segment that micro-batch k of this one waits for; -1: not yet run.
  double end_of_other(Kind kind, int other, std::size_t rank, std::size_t segment, std::size_t k) {
    const auto theirs = static_cast<std::size_t>(other);
    const std::int64_t own_count = problem_.segments[segment].micro_batches;
    const std::int64_t count = problem_.segments[theirs].micro_batches;
    const std::int64_t last =
        ((static_cast<std::int64_t>(k) + 1) * count + own_count - 1) / own_count;
    const std::vector<double>& done = ends(kind, theirs, rank);
    return static_cast<std::int64_t>(done.size()) < last ? -1
                                                         : done[static_cast<std::size_t>(last - 1)];
  }

  // When the inputs of the next pass of this kind have arrived; -1: not yet known.
  double ready(Kind kind, std::size_t segment, std::size_t rank) {
    const std::size_t k = ends(kind, segment, rank).size();
    if (k == static_cast<std::size_t>(problem_.segments[segment].micro_batches)) {
      return -1;
    }
    const auto on = [k](const std::vector<double>& done) { return k < done.size() ? done[k] : -1; };
    if (kind == kForward) {
      const int before = problem_.segments[segment].after;
      return rank > 0      ? on(ends(kForward, segment, rank - 1))
             : before >= 0 ? end_of_other(kForward, before, ranks_ - 1, segment, k)
                           : 0;
    }
    const double own = on(ends(kForward, segment, rank));
    const double above = rank + 1 < ranks_ ? on(ends(kBackward, segment, rank + 1))
                         : feeds_[segment] >= 0
                             ? end_of_other(kBackward, feeds_[segment], 0, segment, k)
                             : own;
    return own < 0 || above < 0 ? -1 : std::max(own, above);
  }

  // The head of a rank's queue: of what can start at once the preferred segment, else what can
  // start first.
  std::optional<Candidate> head(Kind kind, std::size_t rank) {
    std::optional<Candidate> best;
    for (std::size_t s = 0; s < problem_.segments.size(); ++s) {
      const double arrival = ready(kind, s, rank);
      if (arrival < 0) {
        continue;
      }
      const double start = std::max(arrival, free_[rank]);
      if (!best || start < best->start ||
          (start == best->start && priority_[s] < priority_[best->segment])) {
        best = Candidate{kind, s, rank, start};
      }
    }
    return best;
  }

  std::optional<Candidate> next_of(std::size_t rank) {
    const bool full = problem_.cap > 0 && live_[rank] >= problem_.cap;
    const std::optional<Candidate> forward = full ? std::nullopt : head(kForward, rank);
    const std::optional<Candidate> backward = head(kBackward, rank);
    if (!forward || !backward) {
      return forward ? forward : backward;
    }
    if (forward->start != backward->start) {
      return forward->start < backward->start ? forward : backward;
    }
    return forward_last_[rank] ? backward : forward;
  }

  void apply(const Candidate& next) {
    const Segment& segment = problem_.segments[next.segment];
    const bool forward = next.kind == kForward;
    free_[next.rank] = next.start + (forward ? segment.forward : segment.backward);
    ends(next.kind, next.segment, next.rank).push_back(free_[next.rank]);
    live_[next.rank] += forward ? 1 : -1;
    forward_last_[next.rank] = forward;
  }

  const SegmentProblem& problem_;
  std::size_t ranks_;
  std::vector<int> priority_;
  std::vector<int> feeds_;
  std::vector<double> free_;
  std::vector<int> live_;
  std::vector<bool> forward_last_;
  std::vector<std::vector<std::vector<double>>> ends_;  // by kind, segment and rank
  int left_ = 0;
};

// A place in the order is chosen by score + exploration; below the tree the rest is shuffled.
class Tree {
 public:
  Tree(const SegmentProblem& problem, double scale) : problem_(problem), scale_(scale) {
    nodes_.emplace_back();
  }

  void rollout(SegmentOrder& best) {
    std::vector<int> order;
    std::vector<std::size_t> path = {0};
    std::vector<int> left(problem_.segments.size());
    std::iota(left.begin(), left.end(), 0);
    while (!left.empty() && nodes_[path.back()].visits > 0) {
      path.push_back(descend(path.back(), left));
      order.push_back(nodes_[path.back()].segment);
      std::erase(left, order.back());
    }
    for (std::size_t i = left.size(); i > 1; --i) {
      std::swap(left[i - 1], left[static_cast<std::size_t>(random_.below(i))]);
    }
    order.insert(order.end(), left.begin(), left.end());
    const double makespan = makespan_in_order(problem_, order);
    if (makespan < best.makespan) {
      best.makespan = makespan;
      best.order = order;
    }
    for (const std::size_t node : path) {
      ++nodes_[node].visits;
      nodes_[node].score = std::max(nodes_[node].score, scale_ / makespan);
    }
  }

 private:
  static constexpr double kExploration = 0.2;
  struct Node {
    int segment = -1;
    int visits = 0;
    double score = 0;  // given makespan over the best one seen below
    std::vector<std::size_t> children;
  };

  std::size_t descend(std::size_t at, const std::vector<int>& left) {
    if (nodes_[at].children.empty()) {
      for (const int segment : left) {
        nodes_[at].children.push_back(nodes_.size());
        nodes_.emplace_back();
        nodes_.back().segment = segment;
      }
    }
    const double tries = std::log(static_cast<double>(nodes_[at].visits) + 1);
    std::size_t best = nodes_[at].children.front();
    double most = -1;
    for (const std::size_t child : nodes_[at].children) {
      const Node& node = nodes_[child];
      const double value =
          node.visits == 0 ? kNever : node.score + kExploration * std::sqrt(tries / node.visits);
      if (value > most) {
        most = value;
        best = child;
      }
    }
    return best;
  }

  const SegmentProblem& problem_;
  double scale_;
  std::vector<Node> nodes_;
  Random random_{1};
};

}  // namespace

double makespan_in_order(const SegmentProblem& problem, const std::vector<int>& order) {
  return Iteration(problem, order).run();
}

SegmentOrder search_segment_order(const SegmentProblem& problem, int rollouts) {
  SegmentOrder best;
  best.order.resize(problem.segments.size());
  std::iota(best.order.begin(), best.order.end(), 0);
  best.given = makespan_in_order(problem, best.order);
  best.makespan = best.given;
  if (problem.segments.size() < 2) {
    return best;
  }
  Tree tree(problem, best.given < kNever ? best.given : 1);
  for (int i = 0; i < rollouts; ++i) {
    tree.rollout(best);
  }
  return best;
}

}  // namespace orrery::search
