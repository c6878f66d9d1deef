// SPDX-License-Identifier: Apache-2.0
#include "search/nearest_change.hpp"

#include <fmt/format.h>

#include <algorithm>

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
constexpr FewestNodes<plan::Plan>::Shares kOfNodes = {1'000'000, 500'000, 20'000};

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
Tried<plan::Plan> first_that_fits(const plan::Plan& base, const Options& options, Effort& effort,
                                  std::uint64_t most_work = kMostWork) {
  const auto searched = [&]() -> std::optional<Outcome> {
    if (!holds_states(base, options.constraints)) {
      return std::nullopt;
    }
    return search(base, effort.until_first_plan(options, most_work));
  };
  return first_plan<plan::Plan>(searched, effort);
}

void leave_out_fixed(const plan::Plan& base, const Options& options, const Deadline& deadline,
                     NearestChanges& changes) {
  const std::int64_t gpus = base.cluster.num_gpus();
  const std::size_t fixed = options.constraints.fixed_texts().size();
  for (std::size_t i = 0; i < fixed && !interrupted(); ++i) {
    Effort effort(kMostWork, deadline);
    const auto search_with = [&](const Constraints& constraints) {
      Options relaxed = options;
      relaxed.constraints = constraints;
      return effort.over() ? Tried<plan::Plan>{std::nullopt, true}
                           : first_that_fits(base, relaxed, effort);
    };
    leave_out_one<plan::Plan>(
        options.constraints, i, {gpus, gpus}, search_with,
        [](const plan::Plan& plan) -> const plan::Plan& { return plan; },
        [&](const std::string& change, plan::Plan plan) {
          changes.found.push_back({change, std::move(plan)});
        },
        changes.left_open);
  }
}

void free_reserve(const plan::Plan& base, const Options& options, const Deadline& deadline,
                  NearestChanges& changes) {
  if (base.memory_reserve.value() > 0) {
    plan::Plan all = base;
    all.memory_reserve = ByteCount();
    Effort effort(kMostWork, deadline);
    add_change(
        first_that_fits(all, options, effort),
        fmt::format("no memory reserve instead of {}", format_bytes(base.memory_reserve.bytes())),
        "no memory reserve", changes);
  }
}

void allow_offload(const plan::Plan& base, const Options& options, const Deadline& deadline,
                   NearestChanges& changes) {
  if (!options.constraints.allows_offload() && base.cluster.node.host_memory.value() > 0) {
    Options offloading = options;
    offloading.constraints.allow("offload");
    Effort effort(kMostWork, deadline);
    add_change(first_that_fits(base, offloading, effort), "--allow offload", "--allow offload",
               changes);
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

void more_nodes(const Problem& problem, const plan::Plan& base, const Options& options,
                const Deadline& deadline, NearestChanges& changes) {
  const auto search_nodes = [&](int nodes, Effort& effort,
                                std::uint64_t most_work) -> std::optional<Tried<plan::Plan>> {
    const auto other = with_setting(problem, fmt::format("nodes={}", nodes), base);
    return other ? std::optional(first_that_fits(*other, options, effort, most_work))
                 : std::nullopt;
  };
  FewestNodes<plan::Plan> nodes(search_nodes, kOfNodes, deadline);
  nodes.look_above(base.cluster.num_nodes);
  if (const std::string open = nodes.left_open("nodes"); !open.empty()) {
    changes.left_open.push_back(open);
  }
  if (nodes.plan) {
    changes.found.push_back(
        {fmt::format("{} nodes ({} GPUs) instead of {}", nodes.fewest,
                     nodes.fewest * base.cluster.node.gpus, base.cluster.num_nodes),
         std::move(*nodes.plan)});
  }
}

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
               const Outcome& nothing, const Deadline& deadline, NearestChanges& changes) {
  const std::vector<OtherGpu> others = other_gpus(problem, base);
  std::size_t taker = 0;  // the first that takes the closest plan
  std::optional<plan::Plan> plan;
  while (nothing.closest && taker < others.size() && !deadline.over() &&
         !(plan = taken_over(*nothing.closest, others[taker].base, options))) {
    ++taker;
  }
  const bool is_closest = nothing.closest_by_categories && !nothing.timed_out;
  const ByteCount need = is_closest ? least_need(base, *nothing.closest) : ByteCount();
  Effort effort(kMostWork, deadline);
  bool open = nothing.closest && !plan && taker < others.size();
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
    Tried<plan::Plan> smaller = first_that_fits(other, options, effort);
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
  const Deadline deadline(options, nothing.search_time);
  if (!nothing.timed_out) {
    leave_out_fixed(base, options, deadline, changes);
    free_reserve(base, options, deadline, changes);
    allow_offload(base, options, deadline, changes);
    more_nodes(problem, base, options, deadline, changes);
  }
  other_gpu(problem, base, options, nothing, deadline, changes);
  return changes;
}

}  // namespace orrery::search
