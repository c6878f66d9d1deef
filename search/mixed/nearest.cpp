// SPDX-License-Identifier: Apache-2.0
#include "search/mixed/nearest.hpp"

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/interrupt.hpp"
#include "base/quantity_text.hpp"
#include "search/mixed/space.hpp"
#include "search/nearest_parts.hpp"

namespace orrery::search {
namespace {

using Changes = MixedNearestChanges;

// Of one kind of change, in units of mixed/worker.hpp: some two seconds of processor time.
constexpr std::uint64_t kMostOfOneKind = 2'000'000;
// Of all numbers of nodes of a pool together, of one, and of a first look at one.
constexpr FewestNodes<plan::MixedPlan>::Shares kOfNodes = {10'000'000, 3'200'000, 200'000};

// Whether all GPUs together hold parameters and optimizer once, which no plan has less of.
bool holds_states(const plan::MixedPlan& base) {
  double held = 0;
  for (const topologies::Pool& pool : base.machine->cluster.pools) {
    held += static_cast<double>((pool.cluster.gpu.memory - base.shape.memory_reserve).value()) *
            pool.cluster.num_gpus();
  }
  return static_cast<double>(states_once(plan::pool_view(base, 0)).value()) <= held;
}

Tried<plan::MixedPlan> first_that_fits(const plan::MixedPlan& base, const Options& options,
                                       Effort& effort, std::uint64_t most_work = kMostOfOneKind) {
  if (effort.over()) {
    return {std::nullopt, true};
  }
  const auto searched = [&]() -> std::optional<MixedOutcome> {
    if (!holds_states(base)) {
      return std::nullopt;
    }
    return search_mixed(base, effort.until_first_plan(options, most_work));
  };
  return first_plan<plan::MixedPlan>(searched, effort);
}

void leave_out_fixed(const plan::MixedPlan& base, const Options& options, const Deadline& deadline,
                     Changes& changes) {
  const std::int64_t gpus = gpus_of_every_node(base);
  const std::size_t fixed = options.constraints.fixed_texts().size();
  for (std::size_t i = 0; i < fixed && !interrupted(); ++i) {
    Effort effort(kMostOfOneKind, deadline);
    const auto search_with = [&](const Constraints& constraints) {
      Options relaxed = options;
      relaxed.constraints = constraints;
      return first_that_fits(base, relaxed, effort);
    };
    leave_out_one<plan::MixedPlan>(
        options.constraints, i, {gpus, 0}, search_with,
        [](const plan::MixedPlan& plan) -> const plan::Plan& { return plan.shape; },
        [&](const std::string& change, plan::MixedPlan plan) {
          changes.found.push_back({change, std::move(plan)});
        },
        changes.left_open);
  }
}

void free_reserve(const plan::MixedPlan& base, const Options& options, const Deadline& deadline,
                  Changes& changes) {
  const ByteCount reserve = base.shape.memory_reserve;
  if (reserve.value() > 0) {
    plan::MixedPlan all = base;
    all.shape.memory_reserve = ByteCount();
    Effort effort(kMostOfOneKind, deadline);
    add_change(first_that_fits(all, options, effort),
               fmt::format("no memory reserve instead of {}", format_bytes(reserve.bytes())),
               "no memory reserve", changes);
  }
}

// The same search with other nodes in a pool; nothing where there can be no such cluster.
std::optional<plan::MixedPlan> with_setting(const Problem& problem, const std::string& setting,
                                            const plan::MixedPlan& base) {
  try {
    plan::MixedPlan other = mixed_base_plan(with_settings(problem, {setting}));
    other.shape.execution = base.shape.execution;
    return other;
  } catch (const Error& error) {  // a fabric that cannot have so many, a precision that it lacks
    if (error.kind() != ErrorKind::BadInput) {
      throw;
    }
    return std::nullopt;
  }
}

void more_nodes(const Problem& problem, const plan::MixedPlan& base, const topologies::Pool& pool,
                const Options& options, const Deadline& deadline, Changes& changes) {
  using Result = std::optional<Tried<plan::MixedPlan>>;
  const auto search_nodes = [&](int nodes, Effort& effort, std::uint64_t most_work) -> Result {
    const auto other = with_setting(problem, fmt::format("{}.nodes={}", pool.name, nodes), base);
    return other ? Result(first_that_fits(*other, options, effort, most_work)) : std::nullopt;
  };
  FewestNodes<plan::MixedPlan> nodes(search_nodes, kOfNodes, deadline);
  nodes.look_above(pool.cluster.num_nodes);
  if (const std::string open = nodes.left_open("nodes of " + pool.name); !open.empty()) {
    changes.left_open.push_back(open);
  }
  if (nodes.plan) {
    changes.found.push_back(
        {fmt::format("{} nodes of {} ({} GPUs) instead of {}", nodes.fewest, pool.name,
                     nodes.fewest * pool.cluster.node.gpus, pool.cluster.num_nodes),
         std::move(*nodes.plan)});
  }
}

void other_gpu(const Problem& problem, const plan::MixedPlan& base, const topologies::Pool& pool,
               const Options& options, const Deadline& deadline, Changes& changes) {
  Effort effort(kMostOfOneKind, deadline);
  bool open = false;
  for (const topologies::Gpu& gpu : larger_gpus(pool.cluster.gpu)) {
    const auto other = with_setting(problem, fmt::format("{}.gpu={}", pool.name, gpu.name), base);
    if (!other) {
      continue;
    }
    Tried<plan::MixedPlan> tried = first_that_fits(*other, options, effort);
    if (tried.plan) {
      if (open) {
        changes.left_open.push_back(
            fmt::format("GPUs in {} with less memory than {}", pool.name, gpu.name));
      }
      changes.found.push_back({fmt::format("{} in {} instead of {}", with_memory(gpu), pool.name,
                                           with_memory(pool.cluster.gpu)),
                               std::move(*tried.plan)});
      return;
    }
    open = open || tried.cut_short;
  }
  if (open) {
    changes.left_open.push_back("other GPUs in " + pool.name);
  }
}

}  // namespace

MixedNearestChanges nearest_changes(const Problem& problem, const plan::MixedPlan& base,
                                    const Options& options, Seconds searched) {
  const std::vector<topologies::Pool>& pools = base.machine->cluster.pools;
  Changes changes;
  const Deadline deadline(options, searched);
  leave_out_fixed(base, options, deadline, changes);
  free_reserve(base, options, deadline, changes);
  for (const topologies::Pool& pool : pools) {
    more_nodes(problem, base, pool, options, deadline, changes);
  }
  for (const topologies::Pool& pool : pools) {
    other_gpu(problem, base, pool, options, deadline, changes);
  }
  return changes;
}

}  // namespace orrery::search
