// SPDX-License-Identifier: Apache-2.0
#include "search/mixed/space.hpp"

#include <algorithm>
#include <numeric>

#include "plan/heads.hpp"
#include "plan/schedule_traits.hpp"
#include "plan/stage/plan_schedule.hpp"
#include "plan/stages.hpp"
#include "search/mixed/cuts.hpp"

namespace orrery::search {

using plan::ReplicaGroup;

bool runs_on_mixed(const sim::Schedule& schedule) {
  const plan::ScheduleTraits traits = plan::schedule_traits(schedule);
  return schedule.in_plans && traits.synchronous && !traits.two_directions &&
         !traits.shares_output_layer && !traits.uses_slices && !traits.copies_to_host &&
         !traits.spreads_attention && !plan::lacks_stage_bounds(schedule, 1) &&
         !traits.fills_frozen && !traits.by_modules && !schedule.for_experts;
}

std::int64_t gpus_of_every_node(const plan::MixedPlan& base, const std::vector<int>& pools) {
  std::int64_t gpus = 0;
  for (const int pool : pools) {
    gpus = std::gcd(gpus, std::int64_t{base.pool(pool).cluster.node.gpus});
  }
  return gpus;
}

std::int64_t gpus_of_every_node(const plan::MixedPlan& base) {
  std::vector<int> pools(base.num_pools());
  std::iota(pools.begin(), pools.end(), 0);
  return gpus_of_every_node(base, pools);
}

std::vector<MixedLayout> MixedSpace::layouts(const Arrangement& arrangement) const {
  std::vector<MixedLayout> layouts;
  for (const plan::ContextParallel context : contexts(arrangement)) {
    for (const bool sequence_parallel : {false, true}) {
      const bool splits = !sequence_parallel ||
                          (arrangement.tp > 1 && base_.shape.sequence % arrangement.ranks() == 0);
      const bool neutral = arrangement.tp == 1 && !sequence_parallel;
      if (!splits || (!neutral && !constraints_.admits("sequence_parallel",
                                                       sequence_parallel ? "true" : "false"))) {
        continue;
      }
      for (const plan::Recompute recompute :
           {plan::Recompute::None, plan::Recompute::Selective, plan::Recompute::Full}) {
        if (!constraints_.admits("recompute", plan::to_text(recompute))) {
          continue;
        }
        if (arrangement.team.empty()) {
          layouts.push_back({sequence_parallel, recompute, context});
        }
        for (const plan::TensorShares& shares : arrangement.shares) {
          layouts.push_back({sequence_parallel, recompute, context, shares});
        }
      }
    }
  }
  return layouts;
}

std::vector<plan::ContextParallel> MixedSpace::contexts(const Arrangement& arrangement) const {
  using plan::ContextParallel;
  if (arrangement.cp == 1) {
    return {ContextParallel::Ring};
  }
  std::vector<ContextParallel> contexts;
  for (const ContextParallel context :
       {ContextParallel::Ring, ContextParallel::AllGather, ContextParallel::Ulysses}) {
    const bool possible = context != ContextParallel::Ulysses ||
                          plan::exchanges_heads(base_.shape.network.spec, arrangement.ranks());
    if (possible && constraints_.admits("context", plan::to_text(context))) {
      contexts.push_back(context);
    }
  }
  return contexts;
}

// Without chunks, and the numbers of them that are tried.
std::vector<int> MixedSpace::chunk_counts(const Arrangement& arrangement) const {
  std::vector<int> counts;
  const auto layers = static_cast<std::int64_t>(base_.shape.network.chain.size());
  const std::optional<std::int64_t> fixed = constraints_.fixed_number("chunks");
  for (const std::int64_t chunks :
       fixed ? std::vector<std::int64_t>{*fixed} : std::vector<std::int64_t>{1, 2, 4, 8}) {
    if (constraints_.admits("chunks", chunks) && chunks >= 1 && chunks <= layers / arrangement.pp &&
        (chunks == 1 || arrangement.pp > 1)) {
      counts.push_back(static_cast<int>(chunks));
    }
  }
  return counts;
}

const std::vector<std::uint16_t>& MixedSpace::devices_of(std::size_t schedule, int pp, int chunks) {
  const auto [slot, is_new] = devices_.try_emplace({schedule, pp, chunks});
  if (is_new) {
    plan::Plan plan = {};
    plan.schedule = schedules()[schedule].name;
    plan.pp = pp;
    plan.chunks = chunks;
    plan.batch = pp;
    slot->second = plan::schedule_devices(plan);
  }
  return slot->second;
}

const std::vector<MixedSpace::Choice>& MixedSpace::schedules() {
  if (schedules_.empty()) {
    const std::vector<std::string> named = constraints_.named_schedules();
    for (const sim::Schedule* schedule : sim::schedule_table()) {
      const bool asked = std::find(named.begin(), named.end(), schedule->name) != named.end();
      if (runs_on_mixed(*schedule) && (schedule->in_search || asked) &&
          constraints_.admits("schedule", schedule->name)) {
        schedules_.push_back(
            {std::string(schedule->name), plan::schedule_traits(*schedule).joins_passes});
      }
    }
  }
  return schedules_;
}

// Whether they take these numbers.
const std::vector<char>& MixedSpace::takes(int pp, int chunks, std::int64_t micro_batches) {
  std::vector<char>& takes = takes_[{pp, chunks, micro_batches}];
  if (takes.empty()) {
    plan::Plan plan = {};
    plan.pp = pp;
    plan.dp = 1;
    plan.chunks = chunks;
    plan.batch = micro_batches;
    for (const Choice& schedule : schedules()) {
      plan.schedule = schedule.name;
      const bool runs = !plan::lacks_stage_bounds(plan) && plan::schedule_runs(plan);
      takes.push_back(runs ? 1 : 0);
    }
  }
  return takes;
}

void MixedSpace::add_families(const Arrangement& arrangement, int chunks,
                              std::vector<MixedFamily>& families) {
  // Of one stage, as fast as any other and with no more memory.
  const bool only_1f1b = arrangement.pp == 1 && constraints_.admits("schedule", "1f1b");
  const std::size_t first = families.size();
  for (std::size_t index = 0; index < schedules().size(); ++index) {
    const Choice& schedule = schedules()[index];
    const bool runs = std::all_of(
        arrangement.groups.begin(), arrangement.groups.end(), [&](const ReplicaGroup& group) {
          return takes(arrangement.pp, chunks, group.micro_batches)[index] != 0;
        });
    if (!runs || (only_1f1b && schedule.name != "1f1b")) {
      continue;
    }
    const std::vector<std::uint16_t>& devices = devices_of(index, arrangement.pp, chunks);
    const auto same =
        std::find_if(families.begin() + static_cast<std::ptrdiff_t>(first), families.end(),
                     [&](const MixedFamily& family) { return family.device_of == devices; });
    if (same == families.end()) {
      families.push_back({chunks, devices, {schedule.name}, schedule.joins_passes});
    } else {
      same->schedules.push_back(schedule.name);
      same->joins_passes = same->joins_passes || schedule.joins_passes;
    }
  }
}

std::vector<MixedFamily> MixedSpace::families(const Arrangement& arrangement) {
  std::vector<MixedFamily> families;
  for (const int chunks : chunk_counts(arrangement)) {
    add_families(arrangement, chunks, families);
  }
  return families;
}

// Where every replica is on one pool, as on a cluster of its own.
bool MixedSpace::has_even_cut(const Arrangement& arrangement, int chunks) const {
  const bool alone = std::all_of(
      arrangement.groups.begin(), arrangement.groups.end(), [](const ReplicaGroup& group) {
        return std::all_of(group.pools.begin(), group.pools.end(),
                           [&](int pool) { return pool == group.pools.front(); });
      });
  return alone && arrangement.team.empty() && arrangement.pp > 1 &&
         std::int64_t{arrangement.pp} * chunks <= num_layers();
}

MixedChoices MixedSpace::choices(const Arrangement& arrangement) {
  MixedChoices choices{layouts(arrangement), families(arrangement), {}, zero_stages(arrangement)};
  for (std::size_t index = 0; index < choices.families.size(); ++index) {
    const int family = static_cast<int>(index);
    if (arrangement.runs.empty()) {
      for (std::size_t group = 0; group < arrangement.groups.size(); ++group) {
        choices.cuts.push_back({family, {static_cast<int>(group)}});
      }
    } else if (choices.families[index].chunks > 1) {
      choices.cuts.push_back({family, {}});
    } else {
      const auto length = static_cast<int>(base_.shape.network.chain.size());
      for (std::vector<int>& blocks : compositions(length, arrangement.runs)) {
        choices.cuts.push_back({family, std::move(blocks)});
      }
    }
    if (has_even_cut(arrangement, choices.families[index].chunks)) {
      choices.cuts.push_back({family, {}, /*even=*/true});
    }
  }
  return choices;
}

// From ZeRO-2 on the ranks that share states meet in every micro-batch, of which all have as many.
std::vector<int> MixedSpace::zero_stages(const Arrangement& arrangement) const {
  const std::vector<ReplicaGroup>& groups = arrangement.groups;
  const bool meet = std::all_of(groups.begin(), groups.end(), [&](const ReplicaGroup& group) {
    return group.micro_batches == groups.front().micro_batches;
  });
  const int last = meet ? 3 : 1;
  std::vector<int> stages;
  for (int zero = 0; zero <= last; ++zero) {
    if (constraints_.admits("zero", zero) && (zero == 0 || arrangement.dp * arrangement.cp > 1)) {
      stages.push_back(zero);
    }
  }
  return stages;
}

std::int64_t MixedSpace::num_members(const Arrangement& arrangement) {
  const auto length = static_cast<std::int64_t>(base_.shape.network.chain.size());
  std::int64_t members = 0;  // of a layout and a ZeRO stage
  for (const MixedFamily& family : families(arrangement)) {
    const std::int64_t cuts = arrangement.runs.empty()
                                  ? static_cast<std::int64_t>(arrangement.groups.size())
                              : family.chunks > 1 ? 1
                                                  : num_compositions(length, arrangement.runs);
    const std::int64_t even = has_even_cut(arrangement, family.chunks) ? 1 : 0;
    members += (cuts + even) * static_cast<std::int64_t>(family.schedules.size());
  }
  return members * static_cast<std::int64_t>(layouts(arrangement).size()) *
         static_cast<std::int64_t>(zero_stages(arrangement).size());
}

std::vector<int> MixedSpace::stages(const Arrangement& arrangement, const MixedLayout& layout,
                                    const MixedFamily& family, const MixedCut& cut) {
  if (cut.even) {
    return plan::even_stages(base_.shape.network, arrangement.pp * family.chunks);
  }
  const std::size_t length = base_.shape.network.chain.size();
  const int group = arrangement.runs.empty() ? cut.blocks.front() : 0;
  const std::vector<const ChainTimes*> by_device =
      times_of(arrangement.groups[static_cast<std::size_t>(group)].pools, arrangement, layout);
  std::vector<int> stages;
  const auto add = [&](std::size_t begin, std::size_t end,
                       const std::vector<const ChainTimes*>& chains) {
    const std::vector<int> here = least_largest(chains, begin, end);
    stages.insert(stages.end(), here.begin(), here.end());
  };
  if (family.chunks == 1 && !arrangement.runs.empty()) {
    std::size_t begin = 0;
    std::size_t device = 0;
    for (std::size_t run = 0; run < cut.blocks.size(); ++run) {
      const auto count = static_cast<std::size_t>(arrangement.runs[run]);
      const std::size_t end = begin + static_cast<std::size_t>(cut.blocks[run]);
      add(begin, end, {count, by_device[device]});
      begin = end;
      device += count;
    }
    return stages;
  }
  const auto chunks = static_cast<std::size_t>(family.chunks);
  const auto devices = static_cast<std::size_t>(arrangement.pp);
  for (std::size_t chunk = 0; chunk < chunks; ++chunk) {
    std::vector<const ChainTimes*> chains;
    for (std::size_t stage = 0; stage < devices; ++stage) {
      chains.push_back(by_device[family.device_of[chunk * devices + stage]]);
    }
    add(length * chunk / chunks, length * (chunk + 1) / chunks, chains);
  }
  return stages;
}

plan::BlockPlan MixedSpace::block_of(const Arrangement& arrangement,
                                     const MixedLayout& layout) const {
  plan::BlockPlan block = layout_of(arrangement);
  block.context = layout.context;
  block.sequence_parallel = layout.sequence_parallel;
  block.recompute = layout.recompute;
  block.tensor_shares = layout.shares;
  return block;
}

void MixedSpace::configure(const Arrangement& arrangement, const MixedLayout& layout,
                           const MixedFamily& family, const std::vector<int>& stages,
                           const std::string& schedule, int zero_stage,
                           plan::MixedPlan& plan) const {
  plan.groups = arrangement.groups;
  plan::Plan& shape = plan.shape;
  shape.pp = arrangement.pp;
  shape.dp = arrangement.dp;
  shape.micro_batch = arrangement.micro_batch;
  shape.schedule = schedule;
  shape.chunks = family.chunks;
  shape.stage_blocks = stages;
  plan::BlockPlan block = block_of(arrangement, layout);
  block.zero_stage = zero_stage;
  shape.blocks = {{static_cast<int>(shape.network.chain.size()), block}};
}

}  // namespace orrery::search
