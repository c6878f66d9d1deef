// SPDX-License-Identifier: Apache-2.0
#include "search/space/space.hpp"

#include <algorithm>
#include <numeric>

#include "base/error.hpp"
#include "plan/block_rules.hpp"
#include "plan/heads.hpp"
#include "search/space/expert_degrees.hpp"
#include "search/space/layout_fields.hpp"

namespace orrery::search {

using plan::ContextParallel;
using plan::Plan;
using plan::Recompute;

Space::Space(const Plan& base, const Constraints& constraints)
    : base_(base),
      constraints_(constraints),
      schedules_(base_, constraints_),
      layers_(base.network.spec.layers + base.network.spec.encoder_layers +
              base.network.spec.encoder.layers + base.network.spec.cascade.layers),
      shard_degree_(static_cast<int>(constraints.fixed_number("shard_degree").value_or(0))),
      offload_(constraints.offload()),
      known_layouts_(base_) {
  constraints.check_allowed(base.precision);
  if (!constraints.admits("tensor_shares", "equal")) {
    bad_input("--fix", "tensor_shares = by-speed: the GPUs of this cluster are all alike",
              "a mixed cluster whose pools are in the same nodes has unlike ones");
  }
  constraints.apply(layout_);
  mixes_ = constraints.allows_meshes() || !constraints.admits("tensor_parallel", "1d") ||
           layout_.tensor_parallel != plan::TensorMesh::OneD || layout_.ulysses_degree > 1 ||
           (constraints.is_fixed("context") && constraints.admits("context", "mix"));
  unusual_ = mixes_ || !constraints.admits("ep_inside", "dp");
  checks_layouts_ = unusual_ || constraints.fixed_number("expert_tp").value_or(0) > 1 ||
                    may_copy_experts(constraints);
}

const std::vector<Family>& Space::families(const Group& group) const {
  return schedules_.families(group.pp,
                             static_cast<int>(base_.batch / (group.micro_batch * group.dp)),
                             slice_unit(group), group.ep > 1);
}

// Micro-batches of several sequences are cut into sequences first, unless slices are asked for.
// With context parallelism only where its kind is fixed.
int Space::slice_unit(const Group& group) const {
  const models::NetworkSpec& spec = base_.network.spec;
  const bool decodes = spec.family == models::Family::Gpt || spec.family == models::Family::Llama;
  const bool cuts = group.cp == 1 || constraints_.is_fixed("context");
  if (!decodes || !spec.causal || spec.encoder.layers > 0 || !cuts) {
    return 0;
  }
  const std::vector<ScheduleChoice>& choices = schedules_.choices();
  const bool asked = constraints_.is_fixed("slices") ||
                     std::any_of(choices.begin(), choices.end(), [](const ScheduleChoice& choice) {
                       return choice.named && choice.traits.uses_slices;
                     });
  if (group.micro_batch > 1 && !asked) {
    return 0;
  }
  const int ranks = group.tp * group.cp;
  const bool cut = base_.sequence % ranks == 0 && constraints_.admits("sequence_parallel", "true");
  const bool ring = group.cp > 1 && constraints_.admits("context", "ring");
  const int unit = cut ? ranks : group.cp;
  return ring ? std::lcm(unit, 2 * group.cp) : unit;  // two chunks a rank
}

std::int64_t Space::num_schedules(const Group& group) const {
  const std::vector<Family>& all = families(group);
  return all.empty() ? 0
                     : all.back().first + static_cast<std::int64_t>(all.back().schedules.size());
}

std::int64_t Space::num_members(const Group& group) const {
  return num_schedules(group) * static_cast<std::int64_t>(layouts(group).size()) *
         static_cast<std::int64_t>(zero_stages(group).size());
}

std::vector<Member> Space::members(const Group& group) const {
  std::vector<Member> members;
  const std::vector<Member>& all_layouts = layouts(group);
  const std::vector<int> zeros = zero_stages(group);
  for (const Family& family : families(group)) {
    for (Member member : all_layouts) {
      member.chunks = family.chunks;
      member.slices = family.slices;
      member.balanced = family.balanced;
      for (const int schedule : family.schedules) {
        member.schedule = schedule;
        for (const int zero : zeros) {
          member.zero_stage = zero;
          members.push_back(member);
        }
      }
    }
  }
  return members;
}

// One chain of columns is laid out alike whatever the other degrees are.
Space::LayoutKey Space::key_of(const Group& group) const {
  if (!checks_layouts_) {
    return {group.tp, group.cp};
  }
  return {group.tp,
          group.cp,
          group.ep,
          group.expert_tp,
          data_axes(layout_of(group), group.dp),
          samples_that_matter(group.micro_batch, group.tp)};
}

const std::vector<Member>& Space::layouts(const Group& group) const {
  const std::lock_guard<std::mutex> lock(layouts_mutex_);
  const auto [slot, is_new] = layouts_.try_emplace(key_of(group));
  if (is_new) {
    slot->second = generated_layouts(group);
  }
  return slot->second;
}

std::vector<Member> Space::generated_layouts(const Group& group) const {
  std::vector<Member> layouts;
  for (const Member& shape : shapes(group)) {
    if (!checks_layouts_ ||
        known_layouts_.exists(layout_of(group, shape), group.dp, group.micro_batch)) {
      add_recomputations(shape, layouts);
    }
  }
  return layouts;
}

std::vector<Member> Space::shapes(const Group& group) const {
  std::vector<Member> shapes;
  for (const Member& mesh : unusual_ ? meshes(group) : std::vector<Member>{{}}) {
    add_shapes(group, mesh, shapes);
  }
  return shapes;
}

void Space::add_shapes(const Group& group, Member member, std::vector<Member>& shapes) const {
  const plan::TensorMesh mesh = member.mesh;
  const std::int64_t tokens = base_.network.spec.cascade.tokens;  // 0 without one
  for (const ContextParallel context : contexts(group)) {
    for (const bool sequence_parallel : {false, true}) {
      const bool splits = !sequence_parallel || (mesh == plan::TensorMesh::OneD && group.tp > 1 &&
                                                 base_.sequence % (group.tp * group.cp) == 0 &&
                                                 tokens % (group.tp * group.cp) == 0);
      // Alone, a rank shards no sequence, whatever is asked.
      const bool neutral = (group.tp == 1 || mesh != plan::TensorMesh::OneD) && !sequence_parallel;
      if (!splits || (!neutral && !constraints_.admits("sequence_parallel",
                                                       sequence_parallel ? "true" : "false"))) {
        continue;
      }
      member.context = context;
      member.sequence_parallel = sequence_parallel;
      const bool mixes = context == ContextParallel::Mix;
      for (const int degree : mixes ? mix_degrees(group) : std::vector<int>{1}) {
        member.ulysses_degree = degree;
        shapes.push_back(member);
      }
    }
  }
}

// None before all others, which only add work.
void Space::add_recomputations(Member member, std::vector<Member>& layouts) const {
  const auto add = [&](Recompute recompute, plan::OperatorSet set) {
    const std::string operators = set.text();
    if (!constraints_.admits("recompute",
                             operators.empty() ? plan::to_text(recompute) : operators)) {
      return;
    }
    member.recompute = recompute;
    member.recomputed = set;
    for (const plan::Offload& offload : homes(recompute, set)) {
      member.offload = offload;
      layouts.push_back(member);
    }
  };
  for (const Recompute recompute : {Recompute::None, Recompute::Selective, Recompute::Full}) {
    add(recompute, {});
  }
  if (layout_.recompute == Recompute::Products || layout_.recompute == Recompute::Operators) {
    add(layout_.recompute, layout_.recomputed);  // fixed
  } else if (constraints_.allows_operators()) {
    for (const plan::OperatorSet& set : tried_operator_sets()) {
      add(Recompute::Operators, set);
    }
  }
}

std::vector<int> Space::zero_stages(const Group& group) const {
  std::vector<int> stages;
  for (int zero = 0; zero <= 3; ++zero) {
    if (constraints_.admits("zero", zero) && shards_states(group, zero)) {
      stages.push_back(zero);
    }
  }
  return stages;
}

// ZeRO needs ranks to shard over, unless the stage is asked for; a fixed group size must divide.
bool Space::shards_states(const Group& group, int zero_stage) const {
  const int ranks = group.dp * group.cp;
  if (zero_stage < 2 && (offload_.gradients != plan::Tier::Device ||
                         !constraints_.admits("offload_gradients", "device"))) {
    return false;
  }
  if (zero_stage == 0) {
    return shard_degree_ == 0;
  }
  if (shard_degree_ > 0) {
    const int replicas = plan::expert_replicas(layout_of(group));
    return ranks % shard_degree_ == 0 && shard_degree_ % (group.cp * replicas) == 0;
  }
  return ranks > 1 || !constraints_.admits("zero", 0);  // one rank shards nothing
}

std::vector<ContextParallel> Space::contexts(const Group& group) const {
  if (group.cp == 1) {
    return {ContextParallel::Ring};
  }
  std::vector<ContextParallel> contexts;
  for (const ContextParallel context : {ContextParallel::Ring, ContextParallel::AllGather,
                                        ContextParallel::Ulysses, ContextParallel::Mix}) {
    const bool mixes = context != ContextParallel::Mix || mixes_;
    // Beside meshes, whose columns alone cut heads, every layout is checked by itself.
    const bool possible =
        mixes && (context != ContextParallel::Ulysses || unusual_ ||
                  plan::exchanges_heads(base_.network.spec, std::int64_t{group.tp} * group.cp));
    if (possible && constraints_.admits("context", plan::to_text(context))) {
      contexts.push_back(context);
    }
  }
  return contexts;
}

plan::BlockPlan Space::layout_of(const Group& group, const Member& member) const {
  plan::BlockPlan layout = layout_of(group);
  layout.sequence_parallel = member.sequence_parallel;
  layout.context = member.context;
  layout.zero_stage = member.zero_stage;
  layout.shard_degree = shard_degree_;
  layout.offload = member.offload;
  if (member.zero_stage < 2) {
    layout.offload.gradients = plan::Tier::Device;
  }
  layout.recompute = member.recompute;
  layout.recomputed = member.recomputed;
  layout.tensor_parallel = member.mesh;
  layout.tp_inner = member.tp_inner;
  layout.ep_inside = member.ep_inside;
  layout.ulysses_degree = member.ulysses_degree;
  if (member.mesh == plan::TensorMesh::OneD) {
    layout.tp_rows = layout.tp_depth = 0;
  }
  if (member.mesh == plan::TensorMesh::OneD || member.mesh == plan::TensorMesh::ThreeD) {
    layout.broadcasts = plan::Broadcasts::Pipelined;
  }
  return layout;
}

void Space::configure(const Group& group, const Member& member, Plan& plan) const {
  plan.dp = group.dp;
  plan.pp = group.pp;
  plan.chunks = member.chunks;
  plan.slices = member.slices;
  plan.slice_tokens.clear();
  const ScheduleChoice& schedule = schedules_.choices()[static_cast<std::size_t>(member.schedule)];
  plan.schedule = schedule.name;
  plan.schedule_document = schedule.document;
  plan.execution.ships_weights = schedule.ships_weights;
  plan.micro_batch = group.micro_batch;
  plan.blocks = {{static_cast<int>(plan.network.chain.size()), layout_of(group, member)}};
  plan.activation_cap = schedules_.cap_of(group.pp);
  plan.encoder_parts = schedules_.parts_of(schedule);
  plan.servers = schedule.traits.uses_servers
                     ? static_cast<int>(constraints_.fixed_number("servers").value_or(0))
                     : 0;
  plan.clock_distance =
      schedule.traits.pushes_waves
          ? static_cast<int>(constraints_.fixed_number("clock_distance").value_or(0))
          : 0;
  plan.stage_blocks = schedules_.stages(plan.pp, plan.chunks, schedule, member.balanced);
}

}  // namespace orrery::search
