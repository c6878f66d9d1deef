// SPDX-License-Identifier: Apache-2.0
#include "search/mixed_search.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <queue>
#include <utility>

#include "base/error.hpp"
#include "base/interrupt.hpp"
#include "search/mixed_space.hpp"

namespace orrery::search {

namespace {

using Clock = std::chrono::steady_clock;

// A part of the space: an arrangement, one of its layouts, a cut, a schedule, a plan.
struct Node {
  Seconds bound;
  std::int64_t sequence = 0;  // of creation: orders nodes of equal bounds
  std::int64_t plans = 0;
  int arrangement = 0;
  int layout = -1;
  int cut = -1;
  int schedule = -1;
  int zero = -1;
  bool listed = false;  // the bound is that of its lists
};

struct Later {
  bool operator()(const Node& a, const Node& b) const {
    return a.bound != b.bound ? a.bound > b.bound : a.sequence > b.sequence;
  }
};

class Search {
 public:
  Search(const plan::MixedPlan& base, const Options& options)
      : base_(base),
        options_(options),
        plan_(base),
        simulator_(base),
        space_(base, options.constraints, simulator_) {}

  MixedOutcome run(const std::function<void(const ProgressReport&)>& progress) {
    const Clock::time_point start = Clock::now();
    open_all();
    while (!heap_.empty() && !proven()) {
      const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
      outcome_.interrupted = interrupted() || (options_.stop && options_.stop());
      outcome_.timed_out = options_.time_limit.value() > 0 && seconds > options_.time_limit.value();
      if (outcome_.interrupted || outcome_.timed_out) {
        break;
      }
      const Node node = heap_.top();
      heap_.pop();
      expand(node);
      if (progress && ++steps_ % 256 == 0) {
        report(progress);
      }
    }
    close();
    outcome_.search_time = Seconds(std::chrono::duration<double>(Clock::now() - start).count());
    return std::move(outcome_);
  }

 private:
  void open_all() {
    for (std::size_t index = 0; index < space_.arrangements().size(); ++index) {
      const Arrangement& arrangement = space_.arrangements()[index];
      Node node;
      node.plans = space_.num_members(arrangement);
      if (node.plans == 0) {
        continue;
      }
      node.arrangement = static_cast<int>(index);
      node.bound = space_.least_time(arrangement);
      outcome_.plans += node.plans;
      push(node);
    }
    if (outcome_.plans == 0) {
      bad_input("", "no plan of this mixed cluster meets the constraints",
                "degrees are limited by GPUs, layers, heads and batch of network and cluster");
    }
  }

  void push(Node node) {
    node.sequence = ++nodes_;
    heap_.push(node);
  }

  Seconds best_time() const { return outcome_.best->simulation.iteration_time; }
  bool proven() const {
    return outcome_.best && heap_.top().bound >= best_time() * (1.0 - options_.gap_fraction);
  }
  const Arrangement& arrangement_of(const Node& node) const {
    return space_.arrangements()[static_cast<std::size_t>(node.arrangement)];
  }

  void configure(const Node& node) {
    const Arrangement& arrangement = arrangement_of(node);
    const MixedLayout layout = space_.layouts(arrangement)[static_cast<std::size_t>(node.layout)];
    const std::vector<int> zeros = space_.zero_stages(arrangement);
    const int zero = node.zero < 0 ? zeros.back() : zeros[static_cast<std::size_t>(node.zero)];
    space_.configure(
        arrangement, layout, space_.stages(arrangement, layout, cut_of(arrangement, node.cut)),
        space_.schedules(arrangement)[static_cast<std::size_t>(node.schedule)], zero, plan_);
  }

  const std::vector<int>& cut_of(const Arrangement& arrangement, int cut) {
    if (cuts_of_ != &arrangement) {
      cuts_ = space_.cuts(arrangement);
      cuts_of_ = &arrangement;
    }
    return cuts_[static_cast<std::size_t>(cut)];
  }

  void expand(const Node& node) {
    if (node.layout < 0) {
      expand_layouts(node);
    } else if (node.cut < 0) {
      expand_cuts(node);
    } else if (node.schedule < 0) {
      expand_schedules(node);
    } else if (node.zero < 0) {
      expand_zero_stages(node);
    } else if (!node.listed) {
      open_plan(node);
    } else {
      simulate(node);
    }
  }

  void expand_layouts(Node node) {
    const Arrangement& arrangement = arrangement_of(node);
    const std::vector<MixedLayout> layouts = space_.layouts(arrangement);
    node.plans /= static_cast<std::int64_t>(layouts.size());
    const Seconds above = node.bound;
    for (std::size_t layout = 0; layout < layouts.size(); ++layout) {
      node.layout = static_cast<int>(layout);
      node.bound = std::max(above, space_.least_time(arrangement, layouts[layout]));
      push(node);
    }
  }

  void expand_cuts(Node node) {
    const Arrangement& arrangement = arrangement_of(node);
    const MixedLayout layout = space_.layouts(arrangement)[static_cast<std::size_t>(node.layout)];
    cut_of(arrangement, 0);
    node.plans /= static_cast<std::int64_t>(cuts_.size());
    const Seconds above = node.bound;
    std::vector<std::vector<int>> known;
    for (std::size_t cut = 0; cut < cuts_.size(); ++cut) {
      std::vector<int> stages = space_.stages(arrangement, layout, cuts_[cut]);
      if (arrangement.runs.empty()) {
        if (std::find(known.begin(), known.end(), stages) != known.end()) {
          outcome_.pruned += node.plans;  // two pools agree on a cut
          continue;
        }
        known.push_back(stages);
      }
      node.cut = static_cast<int>(cut);
      node.bound = std::max(above, space_.least_time(arrangement, layout, stages));
      push(node);
    }
  }

  void expand_schedules(Node node) {
    const std::size_t count = space_.schedules(arrangement_of(node)).size();
    node.plans /= static_cast<std::int64_t>(count);
    for (std::size_t schedule = 0; schedule < count; ++schedule) {
      node.schedule = static_cast<int>(schedule);
      push(node);
    }
  }

  // ZeRO-3 has the optimizer with least to do, so its bound holds for all stages.
  void expand_zero_stages(Node node) {
    const std::size_t count = space_.zero_stages(arrangement_of(node)).size();
    node.plans /= static_cast<std::int64_t>(count);
    configure(node);
    node.bound = std::max(node.bound, simulator_.lower_bound(plan_));
    for (std::size_t zero = 0; zero < count; ++zero) {
      node.zero = static_cast<int>(zero);
      push(node);
    }
  }

  void open_plan(Node node) {
    configure(node);
    const plan::MemoryVerdict verdict = simulator_.fits(plan_);
    if (!verdict.fits) {
      misses(verdict);
      return;
    }
    node.bound = std::max(node.bound, simulator_.list_bound(plan_));
    node.listed = true;
    push(node);
  }

  void misses(const plan::MemoryVerdict& verdict) {
    ++outcome_.infeasible;
    ++outcome_.pruned;
    if (outcome_.closest_overflow.empty() || verdict.excess < least_excess_) {
      least_excess_ = verdict.excess;
      outcome_.closest_overflow = verdict.text;
    }
  }

  void simulate(const Node& node) {
    configure(node);
    plan::MixedSimulation simulation = simulator_.run(plan_);
    ++outcome_.simulated;
    ORRERY_CHECK(simulation.iteration_time >= node.bound * (1.0 - 1e-9), "a bound is too high");
    keep({plan_, std::move(simulation)});
  }

  // The first of equal times stays in front.
  void keep(MixedFound found) {
    std::vector<MixedFound>& others = outcome_.alternatives;
    if (outcome_.best && found.simulation.iteration_time < best_time()) {
      std::swap(*outcome_.best, found);
      others.insert(others.begin(), std::move(found));
    } else if (!outcome_.best) {
      outcome_.best = std::move(found);
    } else {
      const auto slower = std::find_if(others.begin(), others.end(), [&](const MixedFound& other) {
        return other.simulation.iteration_time > found.simulation.iteration_time;
      });
      others.insert(slower, std::move(found));
    }
    if (static_cast<int>(others.size()) > options_.top) {
      others.pop_back();
    }
  }

  void close() {
    const bool ended = outcome_.interrupted || outcome_.timed_out;
    Seconds open;  // the least bound left
    if (!heap_.empty()) {
      open = heap_.top().bound;
    }
    while (!heap_.empty()) {
      const bool decided = outcome_.best && heap_.top().bound >= best_time();
      (decided || !ended ? outcome_.pruned : outcome_.unexplored) += heap_.top().plans;
      heap_.pop();
    }
    if (!outcome_.best) {
      outcome_.lower_bound = open;
      return;
    }
    outcome_.lower_bound = open.value() > 0 ? std::min(open, best_time()) : best_time();
    outcome_.gap_fraction = std::max(0.0, 1.0 - outcome_.lower_bound / best_time());
    const auto finish = [&](MixedFound& found) {
      found.simulation = simulator_.run(found.plan, options_.interval_draws);
    };
    finish(*outcome_.best);
    for (MixedFound& found : outcome_.alternatives) {
      finish(found);
    }
  }

  void report(const std::function<void(const ProgressReport&)>& progress) const {
    ProgressReport report;
    report.simulated = outcome_.simulated;
    report.bound = heap_.empty() ? Seconds() : heap_.top().bound;
    if (outcome_.best) {
      report.best = best_time();
      report.gap_fraction = std::max(0.0, 1.0 - report.bound / report.best);
    }
    progress(report);
  }

  const plan::MixedPlan& base_;
  const Options& options_;
  plan::MixedPlan plan_;
  plan::MixedSimulator simulator_;
  MixedSpace space_;
  std::priority_queue<Node, std::vector<Node>, Later> heap_;
  std::int64_t nodes_ = 0;
  std::int64_t steps_ = 0;
  const Arrangement* cuts_of_ = nullptr;
  std::vector<std::vector<int>> cuts_;
  ByteCount least_excess_;
  MixedOutcome outcome_;
};

// Choices of the search on one kind of nodes that this one does not have.
void check_options(const Options& options) {
  const Constraints& constraints = options.constraints;
  constexpr const char* kNone = "a plan document may have them: `orrery simulate`";
  for (const char* field : {"cp", "ep", "chunks", "slices"}) {
    if (!constraints.admits(field, std::int64_t{1})) {
      bad_input("--fix", fmt::format("the search of mixed clusters has {} = 1", field),
                std::string(field) == "slices" ? std::string() : std::string(kNone));
    }
  }
  if (constraints.allows_offload() || constraints.allows_operators() ||
      constraints.allows_meshes() || constraints.asynchronous()) {
    bad_input("--allow", "the search of mixed clusters has no such choices");
  }
  if (!constraints.documents().empty()) {
    bad_input("--schedule", "the search of mixed clusters takes registered schedules",
              "a plan document may have its own: `orrery simulate`");
  }
}

}  // namespace

MixedOutcome search_mixed(const plan::MixedPlan& base, const Options& options,
                          const std::function<void(const ProgressReport&)>& progress) {
  check_options(options);
  return Search(base, options).run(progress);
}

std::string verify(const MixedFound& found) {
  const plan::MixedPlan again = plan::read_mixed_plan(plan::to_json(found.plan), "plan");
  const plan::MixedSimulation simulation = plan::MixedSimulator(again).run(again);
  if (simulation.does_not_fit) {
    return *simulation.does_not_fit;
  }
  if (simulation.iteration_time != found.simulation.iteration_time) {
    return fmt::format("simulating the plan gives {} s, the search said {} s",
                       simulation.iteration_time.value(), found.simulation.iteration_time.value());
  }
  return "";
}

}  // namespace orrery::search
