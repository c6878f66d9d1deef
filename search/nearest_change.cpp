// SPDX-License-Identifier: Apache-2.0
#include "search/nearest_change.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/error.hpp"
#include "base/interrupt.hpp"
#include "base/parallel.hpp"
#include "base/quantity_text.hpp"
#include "plan/simulation/simulate.hpp"
#include "search/nearest_parts.hpp"
#include "search/space/space.hpp"
#include "search/tree/memory_check.hpp"

namespace orrery::search {
namespace {

// Of one kind of change, in units of tree/batch.hpp: six seconds of processor time.
constexpr std::uint64_t kMostWork = 400'000;
// Of all numbers of nodes together, of one, which must not use up what the others need, and of a
// first look at one.
constexpr std::uint64_t kWorkOfNodes = 1'000'000;
constexpr std::uint64_t kMostOfOneNumber = kWorkOfNodes / 2;
constexpr std::uint64_t kFirstLook = 20'000;
constexpr Seconds kLongest(60);  // on machines that are slower than any

// What one kind of change may take.
class Effort {
 public:
  explicit Effort(std::uint64_t most = kMostWork) : left_(most) {}
  Options until_first_plan(const Options& options, std::uint64_t most_work) const {
    Options first = patience_.until_first_plan(options);
    first.most_work = std::max<std::uint64_t>(1, std::min(left_, most_work));  // 0 is no limit
    return first;
  }
  void spend(const Outcome& outcome) { left_ -= std::min(left_, outcome.work); }
  bool over() const { return left_ == 0 || patience_.over(); }

 private:
  Patience patience_{kLongest};
  std::uint64_t left_;
};

// What a search for any plan came to.
struct Tried {
  std::optional<plan::Plan> plan;
  bool cut_short = false;  // no plan so far
};

// Whether all GPUs together hold parameters and optimizer once, which no plan has less of; or they
// need not.
bool holds_states(const plan::Plan& base, const Constraints& constraints) {
  plan::BlockPlan layout;
  constraints.apply(layout);
  const bool may_leave = constraints.allows_offload() || layout.offload != plan::Offload();
  const double capacity =
      static_cast<double>((base.cluster.gpu.memory - base.memory_reserve).value());
  return may_leave ||
         static_cast<double>(states_once(base).value()) <= capacity * base.cluster.num_gpus();
}

// The first plan that fits; nothing when none does, none exists or it takes too long.
Tried first_that_fits(const plan::Plan& base, const Options& options, Effort& effort,
                      std::uint64_t most_work = kMostWork) {
  try {
    if (!holds_states(base, options.constraints)) {
      return {};
    }
    Outcome outcome = search(base, effort.until_first_plan(options, most_work));
    effort.spend(outcome);
    if (outcome.best) {
      return {std::move(outcome.best->plan)};
    }
    return {std::nullopt, outcome.timed_out || outcome.interrupted};
  } catch (const Error& error) {  // no plan divides it
    if (error.kind() != ErrorKind::BadInput) {
      throw;
    }
    return {};
  }
}

// A change that one search decides.
void add(Tried tried, const std::string& change, const std::string& kind, NearestChanges& changes) {
  if (tried.plan) {
    changes.found.push_back({change, std::move(*tried.plan)});
  } else if (tried.cut_short) {
    changes.left_open.push_back(kind);
  }
}

void leave_out_fixed(const plan::Plan& base, const Options& options, NearestChanges& changes) {
  const std::vector<std::string> fixed = options.constraints.fixed_texts();
  for (std::size_t i = 0; i < fixed.size() && !interrupted(); ++i) {
    Options relaxed = options;
    relaxed.constraints = options.constraints.without_fixed(i);
    Effort effort;
    Tried tried = first_that_fits(base, relaxed, effort);
    const std::string change = tried.plan ? instead_of(fixed[i], *tried.plan) : "";
    add(std::move(tried), change, "leaving out " + fixed[i], changes);
  }
}

void free_reserve(const plan::Plan& base, const Options& options, NearestChanges& changes) {
  if (base.memory_reserve.value() > 0) {
    plan::Plan all = base;
    all.memory_reserve = ByteCount();
    Effort effort;
    add(first_that_fits(all, options, effort),
        fmt::format("no memory reserve instead of {}", format_bytes(base.memory_reserve.bytes())),
        "no memory reserve", changes);
  }
}

void allow_offload(const plan::Plan& base, const Options& options, NearestChanges& changes) {
  if (!options.constraints.allows_offload() && base.cluster.node.host_memory.value() > 0) {
    Options offloading = options;
    offloading.constraints.allow("offload");
    Effort effort;
    add(first_that_fits(base, offloading, effort), "--allow offload", "--allow offload", changes);
  }
}

// The same search on other hardware.
std::optional<plan::Plan> with_setting(const Problem& problem, const std::string& setting,
                                       const plan::Plan& base) {
  try {
    plan::Plan other = base_plan(with_settings(problem, {setting}));
    other.execution = base.execution;
    return other;
  } catch (const Error& error) {  // a fabric that cannot have so many, a precision that it lacks
    if (error.kind() != ErrorKind::BadInput) {
      throw;
    }
    return std::nullopt;
  }
}

// The fewest nodes more on which there is a plan. All numbers are first looked at shortly, so that
// one that will do is soon known; what work is left goes to the smaller ones that are open.
class MoreNodes {
 public:
  MoreNodes(const Problem& problem, const plan::Plan& base, const Options& options)
      : problem_(problem), base_(base), options_(options) {}

  void add_to(NearestChanges& changes) {
    look_at(node_doublings(base_.cluster.num_nodes));
    if (plan_) {
      look_at(node_counts_below(fewest_));
    }
    if (!open_.empty()) {
      changes.left_open.push_back(plan_ ? fmt::format("fewer than {} nodes", fewest_)
                                        : "more nodes");
    }
    if (plan_) {
      changes.found.push_back(
          {fmt::format("{} nodes ({} GPUs) instead of {}", fewest_,
                       fewest_ * base_.cluster.node.gpus, base_.cluster.num_nodes),
           std::move(*plan_)});
    }
  }

 private:
  // Of numbers that rise.
  void look_at(const std::vector<int>& numbers) {
    try_out(numbers, kFirstLook);
    std::vector<int> open = numbers;
    std::erase_if(open, [&](int nodes) { return open_.count(nodes) == 0; });
    try_out(open, kMostOfOneNumber);
  }

  // Until the first that has a plan; none above it is open any more.
  void try_out(const std::vector<int>& numbers, std::uint64_t most_work) {
    for (const int nodes : numbers) {
      const auto other = with_setting(problem_, fmt::format("nodes={}", nodes), base_);
      if (!other) {
        continue;
      }
      if (effort_.over()) {
        open_.insert(nodes);
        continue;
      }
      Tried tried = first_that_fits(*other, options_, effort_, most_work);
      if (tried.plan) {
        plan_ = std::move(tried.plan);
        fewest_ = nodes;
        open_.erase(open_.lower_bound(nodes), open_.end());
        return;
      }
      if (tried.cut_short) {
        open_.insert(nodes);
      } else {
        open_.erase(nodes);
      }
    }
  }

  const Problem& problem_;
  const plan::Plan& base_;
  const Options& options_;
  Effort effort_{kWorkOfNodes};
  std::optional<plan::Plan> plan_;
  int fewest_ = 0;
  std::set<int> open_;  // numbers whose search was cut short, below those with a plan
};

// A known GPU in place of this one.
struct OtherGpu {
  topologies::Gpu gpu;
  plan::Plan base;
};

std::vector<OtherGpu> other_gpus(const Problem& problem, const plan::Plan& base) {
  std::vector<OtherGpu> others;
  for (const topologies::Gpu& gpu : larger_gpus(base.cluster.gpu)) {
    if (auto other = with_setting(problem, "gpu=" + gpu.name, base)) {
      others.push_back({gpu, std::move(*other)});
    }
  }
  return others;
}

// The closest plan as it is, if it fits there.
std::optional<plan::Plan> taken_over(plan::Plan plan, const plan::Plan& other,
                                     const Options& options) {
  plan.cluster = other.cluster;
  plan.network = other.network;
  plan.profile = other.profile;
  plan.precision = other.precision;
  try {
    plan::check_plan(plan, "");
    plan::Simulator simulator(plan);
    const ByteCount reserve = options.replay_reserve.value_or(plan.memory_reserve);
    const bool fits = simulator.fits(plan).fits &&
                      replay_verdict(plan, simulator, reserve, thread_count(options.jobs)).fits;
    return fits ? std::optional(std::move(plan)) : std::nullopt;
  } catch (const Error&) {
    return std::nullopt;
  }
}

// What the closest plan needs by categories, and so every other plan at the same precision.
ByteCount least_need(const plan::Plan& base, const plan::Plan& closest) {
  ByteCount most;
  for (const plan::StageMemory& stage : plan::Simulator(base).memory(closest)) {
    most = std::max(most, stage.total());
  }
  return most + base.memory_reserve;
}

void other_gpu(const Problem& problem, const plan::Plan& base, const Options& options,
               const Outcome& nothing, NearestChanges& changes) {
  const std::vector<OtherGpu> others = other_gpus(problem, base);
  std::size_t taker = 0;  // the first that takes the closest plan
  std::optional<plan::Plan> plan;
  while (nothing.closest && taker < others.size() &&
         !(plan = taken_over(*nothing.closest, others[taker].base, options))) {
    ++taker;
  }
  const bool is_closest = nothing.closest && !nothing.timed_out;
  const ByteCount need = is_closest ? least_need(base, *nothing.closest) : ByteCount();
  Effort effort;
  bool open = false;
  const std::size_t end = nothing.timed_out ? 0 : plan ? taker : others.size();
  for (std::size_t index = 0; index < end; ++index) {
    const auto& [gpu, other] = others[index];
    if (other.precision == base.precision && gpu.memory < need) {
      continue;
    }
    if (effort.over()) {
      open = true;
      break;
    }
    Tried smaller = first_that_fits(other, options, effort);
    if (smaller.plan) {
      taker = index;
      plan = std::move(smaller.plan);
      break;
    }
    open = open || smaller.cut_short;
  }
  if (open) {
    changes.left_open.push_back(
        plan ? fmt::format("GPUs with less memory than {}", others[taker].gpu.name) : "other GPUs");
  }
  if (plan) {
    changes.found.push_back({fmt::format("{} instead of {}", with_memory(others[taker].gpu),
                                         with_memory(base.cluster.gpu)),
                             std::move(*plan)});
  }
}

}  // namespace

NearestChanges nearest_changes(const Problem& problem, const plan::Plan& base,
                               const Options& options, const Outcome& nothing) {
  NearestChanges changes;
  if (!nothing.timed_out) {
    leave_out_fixed(base, options, changes);
    free_reserve(base, options, changes);
    allow_offload(base, options, changes);
    MoreNodes(problem, base, options).add_to(changes);
  }
  other_gpu(problem, base, options, nothing, changes);
  return changes;
}

}  // namespace orrery::search
