// SPDX-License-Identifier: Apache-2.0
#include "search/nearest_change.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "base/interrupt.hpp"
#include "base/quantity_text.hpp"
#include "search/nearest_parts.hpp"
#include "search/space/space.hpp"

namespace orrery::search {
namespace {

// The first plan that fits; nothing when none does, none exists or it takes too long.
std::optional<plan::Plan> first_that_fits(const plan::Plan& base, const Options& options,
                                          const Patience& patience = Patience()) {
  try {
    Outcome outcome = search(base, patience.until_first_plan(options));
    return outcome.best ? std::optional(std::move(outcome.best->plan)) : std::nullopt;
  } catch (const Error&) {  // no plan divides it
    return std::nullopt;
  }
}

// A field as the plan has it, in the words of --fix; "" for fields that it does not have.
std::string value_in(const plan::Plan& plan, std::string_view field) {
  const plan::BlockPlan& layout = plan.blocks.front().layout;
  const auto number = [](std::int64_t value) { return fmt::format("{}", value); };
  if (field == "tp") {
    return number(layout.tp);
  }
  if (field == "cp") {
    return number(layout.cp);
  }
  if (field == "ep") {
    return number(layout.ep);
  }
  if (field == "pp") {
    return number(plan.pp);
  }
  if (field == "dp") {
    return number(plan.dp);
  }
  if (field == "chunks") {
    return number(plan.chunks);
  }
  if (field == "micro_batch") {
    return number(plan.micro_batch);
  }
  if (field == "zero") {
    return number(layout.zero_stage);
  }
  if (field == "recompute") {
    return std::string(plan::to_text(layout.recompute));
  }
  if (field == "schedule") {
    return plan.schedule;
  }
  if (field == "sequence_parallel") {
    return layout.sequence_parallel ? "true" : "false";
  }
  if (field == "context") {
    return std::string(plan::to_text(layout.context));
  }
  return "";
}

void leave_out_fixed(const plan::Plan& base, const Options& options,
                     std::vector<NearestChange>& changes) {
  const std::vector<std::string> fixed = options.constraints.fixed_texts();
  for (std::size_t i = 0; i < fixed.size() && !interrupted(); ++i) {
    Options relaxed = options;
    relaxed.constraints = options.constraints.without_fixed(i);
    if (std::optional<plan::Plan> plan = first_that_fits(base, relaxed)) {
      const std::string change = instead_of(fixed[i], *plan);
      changes.push_back({change, std::move(*plan)});
    }
  }
}

void free_reserve(const plan::Plan& base, const Options& options,
                  std::vector<NearestChange>& changes) {
  if (base.memory_reserve.value() > 0) {
    plan::Plan all = base;
    all.memory_reserve = ByteCount();
    if (std::optional<plan::Plan> plan = first_that_fits(all, options)) {
      changes.push_back({fmt::format("no memory reserve instead of {}",
                                     format_bytes(base.memory_reserve.bytes())),
                         std::move(*plan)});
    }
  }
}

void allow_offload(const plan::Plan& base, const Options& options,
                   std::vector<NearestChange>& changes) {
  if (!options.constraints.allows_offload() && base.cluster.node.host_memory.value() > 0) {
    Options offloading = options;
    offloading.constraints.allow("offload");
    if (std::optional<plan::Plan> plan = first_that_fits(base, offloading)) {
      changes.push_back({"--allow offload", std::move(*plan)});
    }
  }
}

// The same search on other hardware.
std::optional<plan::Plan> with_setting(const Problem& problem, const std::string& setting,
                                       const plan::Plan& base, const Options& options,
                                       const Patience& patience) {
  try {
    plan::Plan other = base_plan(with_settings(problem, {setting}));
    other.execution = base.execution;
    return first_that_fits(other, options, patience);
  } catch (const Error&) {  // a fabric that cannot have so many, a precision that it lacks
    return std::nullopt;
  }
}

void more_nodes(const Problem& problem, const plan::Plan& base, const Options& options,
                std::vector<NearestChange>& changes) {
  const Patience patience;
  const auto with_nodes = [&](int nodes) -> std::optional<NearestChange> {
    std::optional<plan::Plan> plan =
        with_setting(problem, fmt::format("nodes={}", nodes), base, options, patience);
    if (!plan) {
      return std::nullopt;
    }
    return NearestChange{fmt::format("{} nodes ({} GPUs) instead of {}", nodes,
                                     nodes * base.cluster.node.gpus, base.cluster.num_nodes),
                         std::move(*plan)};
  };
  if (auto change = on_more_nodes(base.cluster.num_nodes, patience, with_nodes)) {
    changes.push_back(std::move(*change));
  }
}

void other_gpu(const Problem& problem, const plan::Plan& base, const Options& options,
               std::vector<NearestChange>& changes) {
  const Patience patience;
  for (const topologies::Gpu& gpu : larger_gpus(base.cluster.gpu)) {
    if (patience.over()) {
      return;
    }
    if (std::optional<plan::Plan> plan =
            with_setting(problem, "gpu=" + gpu.name, base, options, patience)) {
      changes.push_back(
          {fmt::format("{} instead of {}", with_memory(gpu), with_memory(base.cluster.gpu)),
           std::move(*plan)});
      return;
    }
  }
}

}  // namespace

Seconds Patience::left() const {
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begun_;
  return most_ - Seconds(spent.count());
}

Options Patience::until_first_plan(Options options) const {
  options.gap_fraction = 1;  // any plan will do
  options.top = 0;
  options.interval_draws = 0;
  const Seconds most = std::max(left(), Seconds(0.001));  // 0 would be no limit
  options.time_limit = options.time_limit.value() > 0 ? std::min(options.time_limit, most) : most;
  return options;
}

std::string instead_of(const std::string& fixed, const plan::Plan& plan) {
  const std::string field = fixed.substr(0, fixed.find('='));
  const std::string value = value_in(plan, field);
  return value.empty() ? fmt::format("leave out {}", fixed)
                       : fmt::format("{}={} instead of {}", field, value, fixed);
}

std::vector<topologies::Gpu> larger_gpus(const topologies::Gpu& gpu) {
  std::vector<topologies::Gpu> larger;
  for (const std::string& name : topologies::gpu_names()) {
    const topologies::Gpu other = topologies::load_gpu(name);
    if (other.vendor == gpu.vendor && other.memory > gpu.memory &&
        other.hbm_bandwidth >= gpu.hbm_bandwidth) {
      larger.push_back(other);
    }
  }
  std::stable_sort(larger.begin(), larger.end(),
                   [](const auto& a, const auto& b) { return a.memory < b.memory; });
  return larger;
}

std::string with_memory(const topologies::Gpu& gpu) {
  return fmt::format("{} ({})", gpu.name, format_bytes(gpu.memory.bytes()));
}

std::vector<NearestChange> nearest_changes(const Problem& problem, const plan::Plan& base,
                                           const Options& options) {
  std::vector<NearestChange> changes;
  leave_out_fixed(base, options, changes);
  free_reserve(base, options, changes);
  allow_offload(base, options, changes);
  more_nodes(problem, base, options, changes);
  other_gpu(problem, base, options, changes);
  return changes;
}

}  // namespace orrery::search
