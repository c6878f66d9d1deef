// SPDX-License-Identifier: Apache-2.0
// What the searches of nearest changes on one and on several kinds of nodes have in common. Work is
// counted (tree/batch.hpp), so that what is found does not depend on the machine.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "search/tree/search.hpp"

namespace orrery::search {

// When all changes together are to end.
class Deadline {
 public:
  // What the search that found nothing has left of --time-limit, at least a second.
  Deadline(const Options& options, Seconds searched);
  Seconds left() const;
  bool over() const { return left().value() <= 0; }

 private:
  std::optional<std::chrono::steady_clock::time_point> end_;
};

// What one kind of change may take.
class Effort {
 public:
  Effort(std::uint64_t most, const Deadline& deadline) : deadline_(deadline), left_(most) {}
  // However long that takes: the same on every machine.
  explicit Effort(std::uint64_t most) : left_(most) {}
  // Options of a search that ends at its first plan, or after so much work.
  Options until_first_plan(Options options, std::uint64_t most_work) const;
  void spend(std::uint64_t work) { left_ -= work < left_ ? work : left_; }
  bool over() const;

 private:
  Seconds seconds_left() const;

  std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
  std::optional<Deadline> deadline_;
  std::uint64_t left_;
};

// What a search for any plan came to.
template <typename AnyPlan>
struct Tried {
  std::optional<AnyPlan> plan;
  bool cut_short = false;  // no plan so far
};

// What one search came to, whose work is spent; `search` gives nothing where there is no need to
// search. None exists, too, where no plan divides what is asked for.
template <typename AnyPlan, typename Search>
Tried<AnyPlan> first_plan(const Search& search, Effort& effort) {
  constexpr std::uint64_t kEmptySpace = 1'000;  // of a search that simulates nothing
  try {
    auto outcome = search();
    if (!outcome) {
      return {};
    }
    effort.spend(outcome->work);
    if (outcome->best) {
      return {std::move(outcome->best->plan)};
    }
    return {std::nullopt, outcome->timed_out || outcome->interrupted};
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::BadInput) {
      throw;
    }
    effort.spend(kEmptySpace);
    return {};
  }
}

// A change that one search decides, to those found or, as a kind of change, to those left open.
template <typename AnyPlan, typename Changes>
void add_change(Tried<AnyPlan> tried, const std::string& change, const std::string& kind,
                Changes& changes) {
  if (tried.plan) {
    changes.found.push_back({change, std::move(*tried.plan)});
  } else if (tried.cut_short) {
    changes.left_open.push_back(kind);
  }
}

// Numbers of nodes to try in place of `now`, which rise: doublings up to 64 times as many.
std::vector<int> node_doublings(int now);
// Fewer nodes may do than the first doubling that fits: up to seven numbers between it and the one
// before.
std::vector<int> node_counts_below(int doubled);

// The fewest nodes more on which there is a plan. All numbers are first looked at shortly, so that
// one that will do is soon known; what work is left goes to the smaller ones that are open.
template <typename AnyPlan>
class FewestNodes {
 public:
  struct Shares {
    std::uint64_t all = 0;
    std::uint64_t of_one = 0;  // must not use up what the others need
    std::uint64_t first_look = 0;
  };
  // Searches so many nodes for so much work; nothing where there cannot be so many.
  using Search =
      std::function<std::optional<Tried<AnyPlan>>(int nodes, Effort&, std::uint64_t most_work)>;

  FewestNodes(Search search, const Shares& shares, const Deadline& deadline)
      : search_(std::move(search)), shares_(shares), effort_(shares.all, deadline) {}

  void look_above(int now) {
    look_at(node_doublings(now));
    if (plan) {
      look_at(node_counts_below(fewest));
    }
  }
  // What was not looked at to its end: "fewer than 22 nodes"; "" where there is none.
  std::string left_open(const std::string& nodes) const {
    return open_.empty() ? ""
           : plan        ? "fewer than " + std::to_string(fewest) + " " + nodes
                         : "more " + nodes;
  }

  std::optional<AnyPlan> plan;
  int fewest = 0;

 private:
  // Of numbers that rise.
  void look_at(const std::vector<int>& numbers) {
    try_out(numbers, shares_.first_look);
    std::vector<int> open = numbers;
    std::erase_if(open, [&](int nodes) { return open_.count(nodes) == 0; });
    try_out(open, shares_.of_one);
  }

  // Until the first that has a plan; none above it is open any more.
  void try_out(const std::vector<int>& numbers, std::uint64_t most_work) {
    for (const int nodes : numbers) {
      if (effort_.over()) {
        open_.insert(nodes);
        continue;
      }
      std::optional<Tried<AnyPlan>> tried = search_(nodes, effort_, most_work);
      if (!tried) {
        continue;
      }
      if (tried->plan) {
        plan = std::move(tried->plan);
        fewest = nodes;
        open_.erase(open_.lower_bound(nodes), open_.end());
        return;
      }
      if (tried->cut_short) {
        open_.insert(nodes);
      } else {
        open_.erase(nodes);
      }
    }
  }

  Search search_;
  Shares shares_;
  Effort effort_;
  std::set<int> open_;  // numbers whose search was cut short, below those with a plan
};

// What a field that was fixed may be instead; 0: anything.
struct Divided {
  std::int64_t by_ranks = 0;   // tp and cp divide it
  std::int64_t by_stages = 0;  // pp and dp
};

// "tp=8": one of --fix in a plan that was found without it; nothing for fields that plans do not
// have as such.
std::optional<std::string> value_instead(const std::string& fixed, const plan::Plan& plan);
// "recompute=full instead of recompute=none".
std::string instead_of(const std::string& fixed, const plan::Plan& plan);
// Of fields that have an order the values between both ("tp=2", "tp=4"), the nearest to the fixed
// one first.
std::vector<std::string> nearer_values(const std::string& fixed, const plan::Plan& found,
                                       const Divided& divided);

// Leaves out the `index`-th of what is fixed, and looks for the nearest value of it with a plan.
// `search` looks for any plan under these constraints for what effort is left. What was found is
// added with its words, and what was left open.
template <typename AnyPlan, typename Search, typename ShapeOf, typename Found>
void leave_out_one(const Constraints& constraints, std::size_t index, const Divided& divided,
                   Search search, ShapeOf shape_of, Found found,
                   std::vector<std::string>& left_open) {
  const std::string fixed = constraints.fixed_texts()[index];
  const Constraints others = constraints.without_fixed(index);
  Tried<AnyPlan> tried = search(others);
  if (!tried.plan) {
    if (tried.cut_short) {
      left_open.push_back("leaving out " + fixed);
    }
    return;
  }
  for (const std::string& value : nearer_values(fixed, shape_of(*tried.plan), divided)) {
    Constraints nearer = others;
    nearer.fix(value);
    Tried<AnyPlan> one = search(nearer);
    if (one.plan) {
      tried.plan = std::move(one.plan);
      break;
    }
    if (one.cut_short) {
      left_open.push_back(value + " instead of " + fixed);
    }
  }
  const std::string change = instead_of(fixed, shape_of(*tried.plan));
  found(change, std::move(*tried.plan));
}

// All known GPUs of the vendor with more memory that is no slower, the least of it first.
std::vector<topologies::Gpu> larger_gpus(const topologies::Gpu& gpu);
// Parameters and optimizer of the whole network, which no plan has less of over all GPUs together
// unless they live elsewhere.
ByteCount states_once(plan::Plan base);
// "h100-sxm5-80gb (79.6 GiB)": its memory may have been set to less than the product has.
std::string with_memory(const topologies::Gpu& gpu);
}  // namespace orrery::search
