// SPDX-License-Identifier: Apache-2.0
#include "search/mixed/nearest.hpp"

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/interrupt.hpp"
#include "base/quantity_text.hpp"
#include "search/nearest_parts.hpp"

namespace orrery::search {
namespace {

using Changes = std::vector<MixedNearestChange>;

// The first plan that fits; nothing when none does, none exists or it takes too long.
std::optional<plan::MixedPlan> first_that_fits(const plan::MixedPlan& base, const Options& options,
                                               const Patience& patience = {}) {
  try {
    MixedOutcome outcome = search_mixed(base, patience.until_first_plan(options));
    return outcome.best ? std::optional(std::move(outcome.best->plan)) : std::nullopt;
  } catch (const Error&) {  // no plan divides it
    return std::nullopt;
  }
}

void leave_out_fixed(const plan::MixedPlan& base, const Options& options, Changes& changes) {
  const std::vector<std::string> fixed = options.constraints.fixed_texts();
  for (std::size_t i = 0; i < fixed.size() && !interrupted(); ++i) {
    Options relaxed = options;
    relaxed.constraints = options.constraints.without_fixed(i);
    if (std::optional<plan::MixedPlan> plan = first_that_fits(base, relaxed)) {
      const std::string change = instead_of(fixed[i], plan->shape);
      changes.push_back({change, std::move(*plan)});
    }
  }
}

void free_reserve(const plan::MixedPlan& base, const Options& options, Changes& changes) {
  const ByteCount reserve = base.shape.memory_reserve;
  if (reserve.value() > 0) {
    plan::MixedPlan all = base;
    all.shape.memory_reserve = ByteCount();
    if (std::optional<plan::MixedPlan> plan = first_that_fits(all, options)) {
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
  } catch (const Error&) {  // a fabric that cannot have so many, a precision that it lacks
    return std::nullopt;
  }
}

void more_nodes(const Problem& problem, const plan::MixedPlan& base, const topologies::Pool& pool,
                const Options& options, Changes& changes) {
  const Patience patience;
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
  if (auto change = on_more_nodes(pool.cluster.num_nodes, patience, with_nodes)) {
    changes.push_back(std::move(*change));
  }
}

void other_gpu(const Problem& problem, const plan::MixedPlan& base, const topologies::Pool& pool,
               const Options& options, Changes& changes) {
  const Patience patience;
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
  Changes changes;
  leave_out_fixed(base, options, changes);
  free_reserve(base, options, changes);
  for (const topologies::Pool& pool : base.machine->cluster.pools) {
    more_nodes(problem, base, pool, options, changes);
  }
  for (const topologies::Pool& pool : base.machine->cluster.pools) {
    other_gpu(problem, base, pool, options, changes);
  }
  return changes;
}

}  // namespace orrery::search
