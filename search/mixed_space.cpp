// SPDX-License-Identifier: Apache-2.0
#include "search/mixed_space.hpp"

#include <algorithm>
#include <numeric>

#include "base/math.hpp"
#include "plan/plan_schedule.hpp"
#include "search/mixed_cuts.hpp"

namespace orrery::search {

namespace {

using plan::ReplicaGroup;

// Micro-batches to each side of a pool's proportional share that are tried.
constexpr std::int64_t kShareWindow = 8;

bool splits_evenly(const models::NetworkSpec& spec, std::int64_t tp) {
  std::int64_t width = std::gcd(spec.heads, spec.ffn_hidden);
  if (spec.moe.experts > 0) {
    width = std::gcd(std::gcd(width, spec.moe.ffn_hidden), spec.moe.shared_ffn_hidden);
  }
  const bool splits_kv = spec.kv_heads == 0 || spec.kv_heads % tp == 0 || tp % spec.kv_heads == 0;
  return width % tp == 0 && splits_kv;
}

}  // namespace

MixedSpace::MixedSpace(const plan::MixedPlan& base, const Constraints& constraints,
                       plan::MixedSimulator& simulator)
    : base_(base),
      constraints_(constraints),
      simulator_(simulator),
      arrangements_(std::make_shared<std::vector<Arrangement>>()) {
  const auto num_pools = static_cast<unsigned>(base.num_pools());
  for (unsigned chosen = 1; chosen < 1U << num_pools; ++chosen) {
    std::vector<int> pools;
    std::int64_t widest = 0;  // a tensor-parallel group stays inside a node
    for (unsigned pool = 0; pool < num_pools; ++pool) {
      if ((chosen >> pool & 1U) != 0) {
        pools.push_back(static_cast<int>(pool));
        const std::int64_t gpus = base.machine->cluster.pools[pool].cluster.node.gpus;
        widest = std::gcd(widest, gpus);
      }
    }
    for (const std::int64_t tp : divisors(widest)) {
      if (splits_evenly(base.shape.network.spec, tp) && constraints.admits("tp", tp)) {
        add_shapes(pools, static_cast<int>(tp));
      }
    }
  }
}

MixedSpace::MixedSpace(const MixedSpace& other, plan::MixedSimulator& simulator)
    : base_(other.base_),
      constraints_(other.constraints_),
      simulator_(simulator),
      arrangements_(other.arrangements_) {}

std::int64_t MixedSpace::gpus_of(int pool) const {
  return base_.machine->cluster.pools[static_cast<std::size_t>(pool)].cluster.num_gpus();
}

bool MixedSpace::admits(const Arrangement& arrangement) const {
  return constraints_.admits("pp", arrangement.pp) && constraints_.admits("dp", arrangement.dp) &&
         constraints_.admits("micro_batch", arrangement.micro_batch);
}

void MixedSpace::add_shapes(const std::vector<int>& pools, int tp) {
  std::vector<int> order = pools;
  do {
    add_stages(order, tp);
  } while (std::next_permutation(order.begin(), order.end()));
  if (pools.size() > 1) {
    add_replicas(pools, tp);
  }
}

void MixedSpace::add_stages(std::vector<int> order, int tp) {
  const auto layers = static_cast<std::int64_t>(base_.shape.network.spec.layers +
                                                base_.shape.network.spec.encoder_layers);
  std::int64_t fewest = gpus_of(order.front());
  for (const int pool : order) {
    fewest = std::min(fewest, gpus_of(pool));
  }
  for (std::int64_t dp = 1; dp * tp <= fewest; ++dp) {
    if (base_.shape.batch % dp != 0) {
      continue;
    }
    Arrangement one;
    one.tp = tp;
    one.pp = 0;
    one.dp = static_cast<int>(dp);
    ReplicaGroup group;
    group.replicas = one.dp;
    for (const int pool : order) {
      one.runs.push_back(static_cast<int>(gpus_of(pool) / (dp * tp)));
      one.pp += one.runs.back();
      group.pools.insert(group.pools.end(), static_cast<std::size_t>(one.runs.back()), pool);
    }
    if (one.pp > layers) {
      continue;
    }
    for (const std::int64_t micro_batch : divisors(base_.shape.batch / dp)) {
      one.micro_batch = micro_batch;
      group.micro_batches = base_.shape.batch / (dp * micro_batch);
      one.groups = {group};
      if (admits(one)) {
        arrangements_->push_back(one);
      }
    }
  }
}

void MixedSpace::add_replicas(const std::vector<int>& pools, int tp) {
  const auto layers = static_cast<std::int64_t>(base_.shape.network.spec.layers +
                                                base_.shape.network.spec.encoder_layers);
  std::int64_t fewest = gpus_of(pools.front());
  for (const int pool : pools) {
    fewest = std::min(fewest, gpus_of(pool));
  }
  for (std::int64_t pp = 1; pp * tp <= fewest && pp <= layers; ++pp) {
    Arrangement one;
    one.tp = tp;
    one.pp = static_cast<int>(pp);
    one.dp = 0;
    for (const int pool : pools) {
      ReplicaGroup group;
      group.replicas = static_cast<int>(gpus_of(pool) / (pp * tp));
      group.pools.assign(static_cast<std::size_t>(pp), pool);
      one.dp += group.replicas;
      one.groups.push_back(group);
    }
    for (const std::int64_t micro_batch : divisors(base_.shape.batch)) {
      one.micro_batch = micro_batch;
      if (base_.shape.batch / micro_batch >= one.dp && admits(one)) {
        add_shares(one, base_.shape.batch / micro_batch);
      }
    }
  }
}

// Every pool but the last takes what is near its share by speed, the last one what is left.
void MixedSpace::add_shares(Arrangement arrangement, std::int64_t micro_batches) {
  std::vector<ReplicaGroup>& groups = arrangement.groups;
  std::vector<double> speed;
  double all = 0;
  for (const ReplicaGroup& group : groups) {
    const ChainTimes& chain =
        times(group.pools.front(), arrangement.tp, arrangement.micro_batch, MixedLayout());
    speed.push_back(1.0 / to_seconds(chain.of(0, chain.forward.size() - 1)).value());
    all += speed.back() * group.replicas;
  }
  const auto place = [&](auto&& self, std::size_t index, std::int64_t left) -> void {
    ReplicaGroup& group = groups[index];
    if (index + 1 == groups.size()) {
      if (left >= group.replicas && left % group.replicas == 0) {
        group.micro_batches = left / group.replicas;
        arrangements_->push_back(arrangement);
      }
      return;
    }
    const auto share =
        static_cast<std::int64_t>(static_cast<double>(micro_batches) * (speed[index] / all));
    const std::int64_t first = std::max<std::int64_t>(1, share - kShareWindow);
    for (std::int64_t count = first; count <= share + kShareWindow + 1; ++count) {
      group.micro_batches = count;
      if (count * group.replicas < left) {
        self(self, index + 1, left - count * group.replicas);
      }
    }
  };
  place(place, 0, micro_batches);
}

std::vector<MixedLayout> MixedSpace::layouts(const Arrangement& arrangement) const {
  std::vector<MixedLayout> layouts;
  for (const bool sequence_parallel : {false, true}) {
    const bool splits =
        !sequence_parallel || (arrangement.tp > 1 && base_.shape.sequence % arrangement.tp == 0);
    const bool neutral = arrangement.tp == 1 && !sequence_parallel;
    if (!splits || (!neutral && !constraints_.admits("sequence_parallel",
                                                     sequence_parallel ? "true" : "false"))) {
      continue;
    }
    for (const plan::Recompute recompute :
         {plan::Recompute::None, plan::Recompute::Selective, plan::Recompute::Full}) {
      if (constraints_.admits("recompute", plan::to_text(recompute))) {
        layouts.push_back({sequence_parallel, recompute});
      }
    }
  }
  return layouts;
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

const std::vector<std::uint16_t>& MixedSpace::devices_of(const std::string& schedule, int pp,
                                                         int chunks) {
  const auto [slot, is_new] = devices_.try_emplace({schedule, pp, chunks});
  if (is_new) {
    plan::Plan plan = {};
    plan.schedule = schedule;
    plan.pp = pp;
    plan.chunks = chunks;
    plan.batch = pp;
    slot->second = plan::schedule_devices(plan);
  }
  return slot->second;
}

// Schedules of one chain of stages without slices whose numbers they take.
void MixedSpace::add_families(const Arrangement& arrangement, int chunks,
                              std::vector<MixedFamily>& families) {
  const std::size_t first = families.size();
  plan::Plan plan = {};
  plan.pp = arrangement.pp;
  plan.dp = 1;
  plan.chunks = chunks;
  const std::vector<std::string> named = constraints_.named_schedules();
  for (const sim::Schedule* schedule : sim::schedule_table()) {
    const plan::ScheduleTraits traits = plan::schedule_traits(*schedule);
    const bool asked = std::find(named.begin(), named.end(), schedule->name) != named.end();
    const bool plain = schedule->in_plans && traits.synchronous && !traits.two_directions &&
                       !traits.shares_output_layer && !traits.uses_slices &&
                       !traits.copies_to_host && !traits.spreads_attention;
    if (!plain || !(schedule->in_search || asked) ||
        !constraints_.admits("schedule", schedule->name) ||
        (arrangement.pp == 1 && schedule->name != "1f1b")) {
      continue;
    }
    plan.schedule = schedule->name;
    const bool runs = std::all_of(arrangement.groups.begin(), arrangement.groups.end(),
                                  [&](const ReplicaGroup& group) {
                                    plan.batch = group.micro_batches;
                                    return plan::schedule_problem(plan, "schedule").empty();
                                  });
    if (!runs) {
      continue;
    }
    const std::vector<std::uint16_t>& devices = devices_of(plan.schedule, plan.pp, chunks);
    const auto same =
        std::find_if(families.begin() + static_cast<std::ptrdiff_t>(first), families.end(),
                     [&](const MixedFamily& family) { return family.device_of == devices; });
    if (same == families.end()) {
      families.push_back({chunks, devices, {plan.schedule}});
    } else {
      same->schedules.push_back(plan.schedule);
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

MixedChoices MixedSpace::choices(const Arrangement& arrangement) {
  MixedChoices choices{layouts(arrangement), families(arrangement), {}, zero_stages(arrangement)};
  for (std::size_t index = 0; index < choices.families.size(); ++index) {
    const int family = static_cast<int>(index);
    if (arrangement.runs.empty()) {
      for (const ReplicaGroup& group : arrangement.groups) {
        choices.cuts.push_back({family, {group.pools.front()}});
      }
    } else if (choices.families[index].chunks > 1) {
      choices.cuts.push_back({family, {}});
    } else {
      const auto length = static_cast<int>(base_.shape.network.chain.size());
      for (std::vector<int>& blocks : compositions(length, arrangement.runs)) {
        choices.cuts.push_back({family, std::move(blocks)});
      }
    }
  }
  return choices;
}

// From ZeRO-2 on the ranks that share states meet in every micro-batch.
std::vector<int> MixedSpace::zero_stages(const Arrangement& arrangement) const {
  const int last = arrangement.runs.empty() ? 1 : 3;
  std::vector<int> stages;
  for (int zero = 0; zero <= last; ++zero) {
    if (constraints_.admits("zero", zero) && (zero == 0 || arrangement.dp > 1)) {
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
    members += cuts * static_cast<std::int64_t>(family.schedules.size());
  }
  return members * static_cast<std::int64_t>(layouts(arrangement).size()) *
         static_cast<std::int64_t>(zero_stages(arrangement).size());
}

std::vector<int> MixedSpace::stages(const Arrangement& arrangement, const MixedLayout& layout,
                                    const MixedFamily& family, const MixedCut& cut) {
  const std::size_t length = base_.shape.network.chain.size();
  const std::vector<int>& pools = arrangement.groups.front().pools;
  const auto chain_of = [&](int pool) {
    return &times(pool, arrangement.tp, arrangement.micro_batch, layout);
  };
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
      add(begin, end, {count, chain_of(pools[device])});
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
      const std::size_t device = family.device_of[chunk * devices + stage];
      chains.push_back(chain_of(arrangement.runs.empty() ? cut.blocks.front() : pools[device]));
    }
    add(length * chunk / chunks, length * (chunk + 1) / chunks, chains);
  }
  return stages;
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
  plan::BlockPlan block;
  block.tp = arrangement.tp;
  block.sequence_parallel = layout.sequence_parallel;
  block.recompute = layout.recompute;
  block.zero_stage = zero_stage;
  shape.blocks = {{static_cast<int>(shape.network.chain.size()), block}};
}

}  // namespace orrery::search
