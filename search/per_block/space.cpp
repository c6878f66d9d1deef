// SPDX-License-Identifier: Apache-2.0
#include "search/per_block/space.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "base/error.hpp"
#include "plan/schedule_traits.hpp"
#include "search/per_block/counts.hpp"
#include "search/per_block/numbered_plans.hpp"

namespace orrery::search {

namespace {

// log10 of n over k.
double log_choose(double n, double k) {
  return (std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1)) / std::log(10.0);
}

void add(SpaceSize& size, std::int64_t exact, double log10) {
  std::int64_t sum = 0;
  const bool overflow =
      size.exact < 0 || exact < 0 || __builtin_add_overflow(size.exact, exact, &sum);
  size.exact = overflow ? -1 : sum;
  const double high = std::max(size.log10, log10);
  size.log10 = high + std::log10(std::pow(10.0, size.log10 - high) + std::pow(10.0, log10 - high));
}

}  // namespace

std::string SpaceSize::text() const {
  if (exact >= 0) {
    return fmt::format("{}", exact);
  }
  const double whole = std::floor(log10);
  return fmt::format("{:.1f}e+{:.0f}", std::pow(10.0, log10 - whole), whole);
}

Constraints per_block_constraints(Constraints constraints) {
  if (!constraints.admits("slices", 1)) {
    bad_input("--fix", "a layout for each block is searched for whole sequences alone",
              "leave slices out, or use --space homogeneous");
  }
  if (constraints.is_fixed("activation_cap")) {
    bad_input("--fix", "a layout for each block is searched for the schedules' own activations",
              "leave activation_cap out, or use --space homogeneous");
  }
  return constraints;
}

PerBlockSpace::PerBlockSpace(const plan::Plan& base, const Constraints& constraints)
    : space_(base, constraints),
      fixed_cut_(constraints.is_fixed("stages")),
      balanced_cut_(fixed_cut_ && constraints.admits("stages", "balanced")) {
  if (base.execution.post_validation) {
    bad_input("--fix",
              "a layout for each block is searched for devices that meet at the gradient norm",
              "leave post_validation out, or use --space homogeneous");
  }
  std::map<std::pair<int, std::int64_t>, StageMesh> by_key;
  for (const Group& group : space_.groups()) {
    if (space_.num_members(group) > 0) {
      const std::int64_t samples = group.micro_batch * group.dp;
      StageMesh& mesh = by_key[{group.pp, samples}];
      mesh.pp = group.pp;
      mesh.samples = samples;
      mesh.groups.push_back(group);
    }
  }
  for (auto& entry : by_key) {
    entry.second.index = meshes_.size();
    meshes_.push_back(std::move(entry.second));
  }
  num_strategies_ = std::make_unique<std::atomic<std::int64_t>[]>(meshes_.size());
}

std::vector<plan::BlockPlan> PerBlockSpace::strategies(const StageMesh& mesh) const {
  std::vector<plan::BlockPlan> strategies;
  plan::Plan plan = space_.base();
  for (const Group& group : mesh.groups) {
    const Family& family = space_.families(group).front();
    for (Member member : space_.layouts(group)) {
      member.chunks = family.chunks;
      member.balanced = family.balanced;
      member.schedule = family.schedules.front();
      for (const int zero : space_.zero_stages(group)) {
        member.zero_stage = zero;
        space_.configure(group, member, plan);
        strategies.push_back(plan.blocks.front().layout);
      }
    }
  }
  return strategies;
}

std::int64_t PerBlockSpace::num_strategies(const StageMesh& mesh) const {
  std::atomic<std::int64_t>& known = num_strategies_[mesh.index];
  std::int64_t count = known.load(std::memory_order_relaxed);
  if (count > 0) {
    return count;
  }
  for (const Group& group : mesh.groups) {
    count +=
        static_cast<std::int64_t>(space_.layouts(group).size() * space_.zero_stages(group).size());
  }
  known.store(count, std::memory_order_relaxed);
  return count;
}

// How far a schedule takes layouts by block.
PerBlockSpace::Reach PerBlockSpace::reach_of(const Family& family,
                                             const ScheduleChoice& choice) const {
  const plan::ScheduleTraits& traits = choice.traits;
  const models::NetworkSpec& spec = space_.base().network.spec;
  if (!traits.synchronous || choice.cut != plan::ModuleCut::OneChain || spec.cascade.layers > 0 ||
      traits.uses_servers || traits.copies_to_host || traits.spreads_attention ||
      traits.recomputes || traits.lists_updates ||
      (choice.registered != nullptr &&
       plan::lacks_stage_bounds(*choice.registered, family.chunks))) {
    return Reach::OneLayout;
  }
  const bool hides = traits.joins_passes && spec.moe.experts > 0;
  if (hides || family.slices > 1) {
    return Reach::Neighbours;
  }
  return traits.uses_times && !choice.named ? Reach::Unnamed : Reach::Bounded;
}

// Of all groups of a mesh: some schedules run only where experts are spread over ranks.
std::vector<const Family*> PerBlockSpace::families(const StageMesh& mesh) const {
  std::vector<const Family*> families;
  const auto add = [&](const Group& group) {
    for (const Family& family : space_.families(group)) {
      families.push_back(&family);
    }
  };
  add(mesh.groups.front());
  const auto spread = std::find_if(mesh.groups.begin(), mesh.groups.end(),
                                   [](const Group& group) { return group.ep > 1; });
  if (spread != mesh.groups.end() && mesh.groups.front().ep == 1) {
    add(*spread);
  }
  return families;
}

// Those of so much reach, in the order of families.
void PerBlockSpace::add_pipelines(const StageMesh& mesh, Reach reach,
                                  std::vector<Pipeline>& pipelines) const {
  const auto first = static_cast<std::ptrdiff_t>(pipelines.size());
  for (const Family* each : families(mesh)) {
    const Family& family = *each;
    for (const int schedule : family.schedules) {
      const ScheduleChoice& choice =
          space_.schedules().choices()[static_cast<std::size_t>(schedule)];
      if (reach_of(family, choice) != reach) {
        continue;
      }
      const bool known =
          std::any_of(pipelines.begin() + first, pipelines.end(), [&](const Pipeline& one) {
            return one.chunks == family.chunks && one.schedule == schedule &&
                   one.slices == family.slices;
          });
      if (!known) {  // the even and the balanced cut are two families
        pipelines.push_back(
            {family.chunks, schedule, family.placement, family.slices, reach != Reach::Neighbours});
      }
    }
  }
}

std::vector<Pipeline> PerBlockSpace::pipelines(const StageMesh& mesh) const {
  std::vector<Pipeline> pipelines;
  add_pipelines(mesh, Reach::Bounded, pipelines);
  return pipelines;
}

std::vector<Pipeline> PerBlockSpace::all_pipelines(const StageMesh& mesh) const {
  std::vector<Pipeline> pipelines = this->pipelines(mesh);
  add_pipelines(mesh, Reach::Unnamed, pipelines);
  add_pipelines(mesh, Reach::Neighbours, pipelines);
  return pipelines;
}

std::vector<std::string> PerBlockSpace::unproven_schedules() const {
  std::set<std::string> names;
  for (const StageMesh& mesh : meshes_) {
    for (const Family* family : families(mesh)) {
      for (const int schedule : family->schedules) {
        const ScheduleChoice& choice =
            space_.schedules().choices()[static_cast<std::size_t>(schedule)];
        if (reach_of(*family, choice) != Reach::Bounded) {
          names.insert(choice.name);
        }
      }
    }
  }
  return {names.begin(), names.end()};
}

std::optional<PerBlockSpace::Place> PerBlockSpace::place_of(const plan::Plan& plan) const {
  Place place;
  while (meshes_[place.mesh].pp != plan.pp ||
         meshes_[place.mesh].samples != plan.micro_batch * plan.dp) {
    ++place.mesh;
  }
  const auto& choices = space_.schedules().choices();
  for (const Pipeline& one : all_pipelines(meshes_[place.mesh])) {
    if (choices[static_cast<std::size_t>(one.schedule)].name == plan.schedule &&
        one.chunks == plan.chunks && one.slices == plan.slices) {
      return place;
    }
    ++place.pipeline;
  }
  return std::nullopt;
}

bool PerBlockSpace::gains_by_name(const plan::Plan& plan) const {
  const std::optional<Place> place = place_of(plan);
  if (!place) {
    return false;
  }
  std::vector<Pipeline> named;  // behind those that are in the space
  add_pipelines(meshes_[place->mesh], Reach::Unnamed, named);
  const std::size_t first = pipelines(meshes_[place->mesh]).size();
  return place->pipeline >= first && place->pipeline < first + named.size();
}

std::vector<int> PerBlockSpace::first_cut(const StageMesh& mesh, const Pipeline& pipeline) const {
  const ScheduleSpace& schedules = space_.schedules();
  const ScheduleChoice& choice = schedules.choices()[static_cast<std::size_t>(pipeline.schedule)];
  const std::vector<int>& balanced = schedules.stages(mesh.pp, pipeline.chunks, choice, true);
  return balanced_cut_ && !balanced.empty()
             ? balanced
             : schedules.stages(mesh.pp, pipeline.chunks, choice, false);
}

SpaceSize PerBlockSpace::size() const {
  SpaceSize size;
  size.log10 = -1e9;
  const auto positions = static_cast<double>(space_.base().network.chain.size());
  for (const StageMesh& mesh : meshes_) {
    const auto of_block = static_cast<double>(num_strategies(mesh));
    for (const Pipeline& pipeline : pipelines(mesh)) {
      const double cuts = fixed_cut_ ? 0 : mesh.pp * pipeline.chunks - 1;
      add(size, NumberedPlans(*this, mesh, pipeline).size(),
          log_choose(positions - 1, cuts) + positions * std::log10(of_block));
    }
  }
  return size;
}

void PerBlockSpace::configure(const StageMesh& mesh, const plan::BlockPlan& strategy,
                              plan::Plan& plan) const {
  plan.pp = mesh.pp;
  const int model_ranks = strategy.tp * strategy.cp;
  plan.dp = plan.cluster.num_gpus() / mesh.pp / model_ranks;
  plan.micro_batch = mesh.samples / plan.dp;
  plan.blocks = {{static_cast<int>(plan.network.chain.size()), strategy}};
}

void PerBlockSpace::configure(const StageMesh& mesh, const Pipeline& pipeline,
                              const std::vector<plan::BlockPlan>& strategies, const Draft& draft,
                              plan::Plan& plan) const {
  configure(mesh, strategies[draft.strategies.front()], plan);
  plan.chunks = pipeline.chunks;
  plan.slices = pipeline.slices;
  const ScheduleChoice& schedule =
      space_.schedules().choices()[static_cast<std::size_t>(pipeline.schedule)];
  plan.schedule = schedule.name;
  plan.schedule_document = schedule.document;
  plan.stage_blocks = draft.stages;
  plan.blocks.clear();
  for (const std::uint16_t strategy : draft.strategies) {
    if (!plan.blocks.empty() && plan.blocks.back().layout == strategies[strategy]) {
      ++plan.blocks.back().count;
    } else {
      plan.blocks.push_back({1, strategies[strategy]});
    }
  }
}

}  // namespace orrery::search
