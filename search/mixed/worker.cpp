// SPDX-License-Identifier: Apache-2.0
#include "search/mixed/worker.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "plan/mixed/replay.hpp"
#include "plan/stage/layout_bounds.hpp"
#include "search/tree/memory_check.hpp"

namespace orrery::search {

std::uint64_t work_of(const MixedNode& node) {
  if (node.schedule >= 0) {
    return 40;
  }
  return node.layout < 0 ? 4 : node.cut < 0 ? 40 : 1;
}

MixedWorker::MixedWorker(const plan::MixedPlan& base, const Constraints& constraints,
                         const std::function<bool()>& stop)
    : base_(base),
      constraints_(constraints),
      plan_(base),
      simulator_(base),
      space_(base, constraints, simulator_, stop) {
  for (std::size_t pool = 0; pool < base.num_pools(); ++pool) {
    views_.push_back(plan::pool_view(base, pool));
  }
}

MixedWorker::MixedWorker(const MixedWorker& other)
    : base_(other.base_),
      constraints_(other.constraints_),
      plan_(other.base_),
      simulator_(other.base_),
      space_(other.space_, simulator_),
      views_(other.views_) {}

const MixedChoices& MixedWorker::choices_of(const MixedNode& node) {
  if (choices_of_ != node.arrangement) {
    choices_ = space_.choices(arrangement_of(node));
    choices_of_ = node.arrangement;
  }
  return choices_;
}

const MixedFamily& MixedWorker::family_of(const MixedNode& node) {
  const MixedChoices& choices = choices_of(node);
  const int family = choices.cuts[static_cast<std::size_t>(node.cut)].family;
  return choices.families[static_cast<std::size_t>(family)];
}

MixedNode MixedWorker::root(int arrangement, bool bounded) {
  MixedNode node;
  node.arrangement = arrangement;
  node.plans = space_.num_members(arrangement_of(node));
  node.bound = node.plans == 0 || !bounded ? Seconds() : space_.least_time(arrangement_of(node));
  return node;
}

bool MixedWorker::has(const MixedNode& node) {
  const auto is_of = [](int index, std::size_t count) {
    return index >= 0 && static_cast<std::size_t>(index) < count;
  };
  if (!is_of(node.arrangement, space_.arrangements().size())) {
    return false;
  }
  if (node.layout < 0) {
    return node.cut < 0 && node.schedule < 0 && node.zero < 0;
  }
  const MixedChoices& choices = choices_of(node);
  if (!is_of(node.layout, choices.layouts.size())) {
    return false;
  }
  if (node.cut < 0) {
    return node.schedule < 0 && node.zero < 0;
  }
  if (!is_of(node.cut, choices.cuts.size())) {
    return false;
  }
  const bool chosen = is_of(node.schedule, family_of(node).schedules.size());
  return node.zero < 0 ? node.schedule < 0 || chosen
                       : chosen && is_of(node.zero, choices.zero_stages.size());
}

std::uint64_t MixedWorker::passes_of(const MixedNode& node) const {
  const Arrangement& arrangement = arrangement_of(node);
  std::int64_t micro_batches = 0;
  for (const plan::ReplicaGroup& group : arrangement.groups) {
    micro_batches += group.micro_batches;
  }
  return static_cast<std::uint64_t>(micro_batches * arrangement.pp);
}

const plan::MixedPlan& MixedWorker::configure(const MixedNode& node) {
  const MixedChoices& choices = choices_of(node);
  const MixedFamily& family = family_of(node);
  const Arrangement& arrangement = arrangement_of(node);
  const MixedLayout& layout = choices.layouts[static_cast<std::size_t>(node.layout)];
  const MixedCut& cut = choices.cuts[static_cast<std::size_t>(node.cut)];
  const std::vector<int>& zeros = choices.zero_stages;
  const int zero = node.zero < 0 ? zeros.back() : zeros[static_cast<std::size_t>(node.zero)];
  space_.configure(arrangement, layout, family, space_.stages(arrangement, layout, family, cut),
                   family.schedules[static_cast<std::size_t>(node.schedule)], zero, plan_);
  return plan_;
}

MixedStep MixedWorker::step(const MixedNode& node, const MixedKnown& known) {
  MixedStep step;
  if (node.layout < 0) {
    add_layouts(node, step);
  } else if (node.cut < 0) {
    add_cuts(node, known, step);
  } else if (node.schedule < 0) {
    add_schedules(node, known, step);
  } else if (node.zero < 0) {
    add_zero_stages(node, step);
  } else if (!node.listed) {
    add_plan(node, step);
  } else {
    step.time = simulate(node, 0, {}).iteration_time;
    ORRERY_CHECK(*step.time >= node.bound * (1.0 - 1e-9), "a bound is too high");
  }
  return step;
}

void MixedWorker::add_layouts(MixedNode node, MixedStep& step) {
  const Arrangement& arrangement = arrangement_of(node);
  const std::vector<MixedLayout>& layouts = choices_of(node).layouts;
  node.plans /= static_cast<std::int64_t>(layouts.size());
  const Seconds above = node.bound;
  for (std::size_t layout = 0; layout < layouts.size(); ++layout) {
    node.layout = static_cast<int>(layout);
    node.bound = std::max(above, space_.least_time(arrangement, layouts[layout]));
    step.children.push_back(node);
  }
}

void MixedWorker::add_cuts(MixedNode node, const MixedKnown& known, MixedStep& step) {
  const Arrangement& arrangement = arrangement_of(node);
  const MixedChoices& choices = choices_of(node);
  const MixedLayout& layout = choices.layouts[static_cast<std::size_t>(node.layout)];
  const std::optional<MixedMemoryFloor> floor = memory_floor(node);
  if (floor ? is_hopeless(floor->excess(), known) : is_hopeless(node, known)) {
    step.misfits = node.plans;
    return;
  }
  const Seconds above = node.bound;
  std::vector<std::pair<int, std::vector<int>>> seen;  // by family
  for (std::size_t index = 0; index < choices.cuts.size(); ++index) {
    const MixedCut& cut = choices.cuts[index];
    const MixedFamily& family = choices.families[static_cast<std::size_t>(cut.family)];
    node.plans = static_cast<std::int64_t>(family.schedules.size() * choices.zero_stages.size());
    const bool by_runs = !arrangement.runs.empty() && !cut.blocks.empty();
    if (floor && by_runs &&
        is_hopeless(floor->excess_of_runs(arrangement.runs, cut.blocks), known)) {
      step.misfits += node.plans;
      continue;
    }
    std::vector<int> stages = space_.stages(arrangement, layout, family, cut);
    if (floor && is_hopeless(floor->excess_of_stages(family, stages), known)) {
      step.misfits += node.plans;
      continue;
    }
    node.bound = std::max(above, space_.least_time(arrangement, layout, family, stages));
    if (arrangement.runs.size() <= 1) {
      std::pair<int, std::vector<int>> own{cut.family, std::move(stages)};
      if (std::find(seen.begin(), seen.end(), own) != seen.end()) {
        step.same += node.plans;  // two pools agree on a cut, or it is even
        continue;
      }
      seen.push_back(std::move(own));
    }
    node.cut = static_cast<int>(index);
    step.children.push_back(node);
  }
}

// Before the cuts: with any of them. Teams have their own shares of every tensor.
std::optional<MixedMemoryFloor> MixedWorker::memory_floor(MixedNode node) {
  if (!arrangement_of(node).team.empty()) {
    return std::nullopt;
  }
  node.cut = 0;
  node.schedule = 0;
  configure(node);
  return MixedMemoryFloor(plan_, choices_of(node).zero_stages, views_, simulator_);
}

// States, and one micro-batch of every virtual stage, on the fullest device (without a cut: in the
// mean of all) under the thriftiest ZeRO stage, against the largest GPU of every group.
ByteCount MixedWorker::least_excess(const MixedNode& node) {
  MixedNode any = node;
  any.cut = std::max(node.cut, 0);
  any.schedule = 0;
  configure(any);
  const MixedChoices& choices = choices_of(node);
  ByteCount most;
  for (const plan::ReplicaGroup& group : plan_.groups) {
    ByteCount capacity;
    std::optional<ByteCount> floor;
    for (std::size_t pool = 0; pool < views_.size(); ++pool) {
      if (!group.uses(static_cast<int>(pool))) {
        continue;
      }
      plan::Plan& view = views_[pool];
      plan::set_view(plan_, group.micro_batches, view);
      plan::LayoutBounds bounds(view, choices.zero_stages, simulator_.costs(pool), splits_);
      const auto add = [&floor](ByteCount bytes) {
        floor = floor ? std::min(*floor, bytes) : bytes;
      };
      if (node.cut < 0) {
        for (std::size_t zero = 0; zero < choices.zero_stages.size(); ++zero) {
          add(bounds.least_memory(zero, false));
        }
      } else {
        const plan::StagePlacement placement = {.device_of = family_of(node).device_of};
        for (const ByteCount bytes : bounds.memory(plan_.shape.stage_blocks, placement)) {
          add(bytes);
        }
      }
      capacity = std::max(capacity, view.cluster.gpu.memory - plan_.shape.memory_reserve);
    }
    most = std::max(most, floor.value_or(capacity) - capacity);
  }
  return most;
}

bool MixedWorker::is_hopeless(const MixedNode& node, const MixedKnown& known) {
  return (known.found || known.closest) && is_hopeless(least_excess(node), known);
}

bool MixedWorker::is_hopeless(ByteCount excess, const MixedKnown& known) {
  return excess.value() > 0 && (known.found || (known.closest && excess >= *known.closest));
}

void MixedWorker::add_schedules(MixedNode node, const MixedKnown& known, MixedStep& step) {
  if (is_hopeless(node, known)) {
    step.misfits = node.plans;
    return;
  }
  const std::size_t count = family_of(node).schedules.size();
  node.plans /= static_cast<std::int64_t>(count);
  for (std::size_t schedule = 0; schedule < count; ++schedule) {
    node.schedule = static_cast<int>(schedule);
    step.children.push_back(node);
  }
}

// The last ZeRO stage has the optimizer with least to do, so its bound holds for all of them.
void MixedWorker::add_zero_stages(MixedNode node, MixedStep& step) {
  const std::size_t count = choices_of(node).zero_stages.size();
  node.plans /= static_cast<std::int64_t>(count);
  node.bound = std::max(node.bound, simulator_.lower_bound(configure(node)));
  for (std::size_t zero = 0; zero < count; ++zero) {
    node.zero = static_cast<int>(zero);
    step.children.push_back(node);
  }
}

void MixedWorker::add_plan(MixedNode node, MixedStep& step) {
  const plan::MemoryVerdict verdict = simulator_.fits(configure(node));
  if (!verdict.fits) {
    step.misfits = 1;
    step.misfit = verdict;
    return;
  }
  node.bound = std::max(node.bound, simulator_.list_bound(plan_));
  node.listed = true;
  step.children.push_back(node);
}

plan::MixedSimulation MixedWorker::simulate(const MixedNode& node, int interval_draws,
                                            const std::function<bool()>& stop_draws) {
  return simulator_.run(configure(node), interval_draws, stop_draws);
}

plan::MemoryVerdict MixedWorker::replay(const MixedNode& node, ByteCount reserve, int jobs) {
  const plan::MixedSimulation run = simulate(node, 0, {});
  for (std::size_t index = 0; index < plan_.groups.size(); ++index) {
    if (!plan_.groups[index].teams.empty()) {
      return plan::replayed_verdict(plan_, reserve, jobs);
    }
    const std::vector<int>& pools = plan_.groups[index].pools;
    for (std::size_t device = 0; device < pools.size(); ++device) {
      const auto pool = static_cast<std::size_t>(pools[device]);
      const ByteCount capacity = base_.machine->cluster.pools[pool].cluster.gpu.memory - reserve;
      if (!surely_fits(run.groups[index].memory[device].total(), capacity)) {
        return plan::replayed_verdict(plan_, reserve, jobs);
      }
    }
  }
  return {};
}

}  // namespace orrery::search
