// SPDX-License-Identifier: Apache-2.0
#include "search/mixed/nearest.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "base/interrupt.hpp"
#include "base/quantity_text.hpp"
#include "search/nearest_parts.hpp"

namespace orrery::search {
namespace {

using Changes = std::vector<MixedNearestChange>;

// For all kinds of change together, and the part of its patience that a kind spends on one search
// for a fast plan, and again on one for any plan.
constexpr Seconds kPatience(8);
constexpr double kPartOfPatience = 0.25;

// What each kind of change may take: an equal part of what those before it have left.
class Turns {
 public:
  explicit Turns(std::size_t kinds) : kinds_(kinds) {}
  Patience next() { return Patience(all_.left() / static_cast<double>(kinds_--)); }

 private:
  Patience all_{kPatience};
  std::size_t kinds_;
};

// Whether all GPUs together hold parameters and optimizer once, which no plan has less of.
bool holds_states(const plan::MixedPlan& base) {
  double held = 0;
  for (const topologies::Pool& pool : base.machine->cluster.pools) {
    held += static_cast<double>((pool.cluster.gpu.memory - base.shape.memory_reserve).value()) *
            pool.cluster.num_gpus();
  }
  return static_cast<double>(states_once(plan::pool_view(base, 0)).value()) <= held;
}

// A plan that fits; nothing when none does, none exists or it takes too long.
std::optional<plan::MixedPlan> first_that_fits(const plan::MixedPlan& base, const Options& options,
                                               const Patience& patience) {
  try {
    if (!holds_states(base)) {
      return std::nullopt;
    }
    const Seconds part = std::max(patience.left() * kPartOfPatience, Seconds(0.001));
    Options first = patience.until_first_plan(options);
    first.time_limit = std::min(first.time_limit, part);
    MixedOutcome outcome = search_mixed(base, first, {}, part);
    return outcome.best ? std::optional(std::move(outcome.best->plan)) : std::nullopt;
  } catch (const Error& error) {  // no plan divides it
    if (error.kind() != ErrorKind::BadInput) {
      throw;
    }
    return std::nullopt;
  }
}

void leave_out_fixed(const plan::MixedPlan& base, const Options& options, Turns& turns,
                     Changes& changes) {
  const std::vector<std::string> fixed = options.constraints.fixed_texts();
  for (std::size_t i = 0; i < fixed.size() && !interrupted(); ++i) {
    Options relaxed = options;
    relaxed.constraints = options.constraints.without_fixed(i);
    if (std::optional<plan::MixedPlan> plan = first_that_fits(base, relaxed, turns.next())) {
      const std::string change = instead_of(fixed[i], plan->shape);
      changes.push_back({change, std::move(*plan)});
    }
  }
}

void free_reserve(const plan::MixedPlan& base, const Options& options, Turns& turns,
                  Changes& changes) {
  const ByteCount reserve = base.shape.memory_reserve;
  if (reserve.value() > 0) {
    plan::MixedPlan all = base;
    all.shape.memory_reserve = ByteCount();
    if (std::optional<plan::MixedPlan> plan = first_that_fits(all, options, turns.next())) {
      changes.push_back(
          {fmt::format("no memory reserve instead of {}", format_bytes(reserve.bytes())),
           std::move(*plan)});
    }
  }
}

// The same search with other nodes in a pool.
std::optional<plan::MixedPlan> with_setting(const Problem& problem, const std::string& setting,
                                            const plan::MixedPlan& base, const Options& options,
                                            const Patience& patience) {
  try {
    plan::MixedPlan other = mixed_base_plan(with_settings(problem, {setting}));
    other.shape.execution = base.shape.execution;
    return first_that_fits(other, options, patience);
  } catch (const Error& error) {  // a fabric that cannot have so many, a precision that it lacks
    if (error.kind() != ErrorKind::BadInput) {
      throw;
    }
    return std::nullopt;
  }
}

void more_nodes(const Problem& problem, const plan::MixedPlan& base, const topologies::Pool& pool,
                const Options& options, const Patience& patience, Changes& changes) {
  const auto with_nodes = [&](int nodes) -> std::optional<MixedNearestChange> {
    std::optional<plan::MixedPlan> plan = with_setting(
        problem, fmt::format("{}.nodes={}", pool.name, nodes), base, options, patience);
    if (!plan) {
      return std::nullopt;
    }
    return MixedNearestChange{
        fmt::format("{} nodes of {} ({} GPUs) instead of {}", nodes, pool.name,
                    nodes * pool.cluster.node.gpus, pool.cluster.num_nodes),
        std::move(*plan)};
  };
  int fewest = 0;
  // The first number that has a plan, as far as patience goes.
  const auto first_of = [&](const std::vector<int>& numbers) {
    std::optional<MixedNearestChange> change;
    for (std::size_t i = 0; i < numbers.size() && !change && !patience.over(); ++i) {
      change = with_nodes(numbers[i]);
      fewest = numbers[i];
    }
    return change;
  };
  std::optional<MixedNearestChange> change = first_of(node_doublings(pool.cluster.num_nodes));
  if (change) {
    std::optional<MixedNearestChange> fewer = first_of(node_counts_below(fewest));
    changes.push_back(std::move(fewer ? *fewer : *change));
  }
}

void other_gpu(const Problem& problem, const plan::MixedPlan& base, const topologies::Pool& pool,
               const Options& options, const Patience& patience, Changes& changes) {
  for (const topologies::Gpu& gpu : larger_gpus(pool.cluster.gpu)) {
    if (patience.over()) {
      return;
    }
    if (std::optional<plan::MixedPlan> plan = with_setting(
            problem, fmt::format("{}.gpu={}", pool.name, gpu.name), base, options, patience)) {
      changes.push_back({fmt::format("{} in {} instead of {}", with_memory(gpu), pool.name,
                                     with_memory(pool.cluster.gpu)),
                         std::move(*plan)});
      return;
    }
  }
}

}  // namespace

std::vector<MixedNearestChange> nearest_changes(const Problem& problem, const plan::MixedPlan& base,
                                                const Options& options) {
  const std::vector<topologies::Pool>& pools = base.machine->cluster.pools;
  const std::size_t reserved = base.shape.memory_reserve.value() > 0 ? 1 : 0;
  Turns turns(options.constraints.fixed_texts().size() + reserved + 2 * pools.size());
  Changes changes;
  leave_out_fixed(base, options, turns, changes);
  free_reserve(base, options, turns, changes);
  for (const topologies::Pool& pool : pools) {
    more_nodes(problem, base, pool, options, turns.next(), changes);
  }
  for (const topologies::Pool& pool : pools) {
    other_gpu(problem, base, pool, options, turns.next(), changes);
  }
  return changes;
}

}  // namespace orrery::search
