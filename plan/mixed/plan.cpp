// SPDX-License-Identifier: Apache-2.0
#include "plan/mixed/plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/error.hpp"
#include "plan/block_rules.hpp"
#include "plan/plan_parts.hpp"
#include "plan/schedule_traits.hpp"
#include "plan/stage/plan_schedule.hpp"

namespace orrery::plan {

std::vector<std::int64_t> MixedPlan::gpus_used() const {
  std::vector<std::int64_t> used(num_pools(), 0);
  const BlockPlan& first = shape.blocks.front().layout;
  for (const ReplicaGroup& group : groups) {
    const std::int64_t ranks = std::int64_t{first.cp} * group.replicas;
    for (std::size_t device = 0; device < group.pools.size(); ++device) {
      if (const std::vector<int>* team = group.team_of(device)) {
        for (const int pool : *team) {
          used[static_cast<std::size_t>(pool)] += ranks;
        }
      } else {
        used[static_cast<std::size_t>(group.pools[device])] += ranks * first.tp;
      }
    }
  }
  return used;
}

std::vector<int> ReplicaGroup::ranks_of(std::size_t device) const {
  const std::vector<int>* team = team_of(device);
  return team == nullptr ? std::vector<int>{pools[device]} : *team;
}

std::vector<int> ReplicaGroup::pools_of(std::size_t device) const {
  std::vector<int> kinds = ranks_of(device);
  std::sort(kinds.begin(), kinds.end());
  kinds.erase(std::unique(kinds.begin(), kinds.end()), kinds.end());
  return kinds;
}

bool ReplicaGroup::uses(int pool) const {
  for (std::size_t device = 0; device < pools.size(); ++device) {
    const std::vector<int> kinds = pools_of(device);
    if (std::find(kinds.begin(), kinds.end(), pool) != kinds.end()) {
      return true;
    }
  }
  return false;
}

std::int64_t MixedPlan::num_gpus() const {
  const std::vector<std::int64_t> used = gpus_used();
  return std::accumulate(used.begin(), used.end(), std::int64_t{0});
}

std::vector<int> MixedPlan::pools_of_device(int device) const {
  std::vector<int> pools;
  for (const ReplicaGroup& group : groups) {
    const std::vector<int> kinds = group.pools_of(static_cast<std::size_t>(device));
    pools.insert(pools.end(), kinds.begin(), kinds.end());
  }
  std::sort(pools.begin(), pools.end());
  pools.erase(std::unique(pools.begin(), pools.end()), pools.end());
  return pools;
}

void set_view(const MixedPlan& plan, std::int64_t micro_batches, Plan& view) {
  const Plan& shape = plan.shape;
  view.dp = shape.dp;
  view.pp = shape.pp;
  view.chunks = shape.chunks;
  view.schedule = shape.schedule;
  view.schedule_document = shape.schedule_document;
  view.activation_cap = shape.activation_cap;
  view.micro_batch = shape.micro_batch;
  view.stage_blocks = shape.stage_blocks;
  view.blocks = shape.blocks;
  view.batch = micro_batches * shape.micro_batch * shape.dp;
}

void set_ranks(const MixedPlan& plan, const ReplicaGroup& group, int pool, Plan& view) {
  if (group.teams.empty()) {
    return;
  }
  const std::vector<std::uint16_t> device_of = schedule_devices(plan.shape);
  std::vector<BlockRun> runs;
  int position = 0;
  for (std::size_t stage = 0; stage < plan.shape.stage_blocks.size(); ++stage) {
    const std::vector<int>* team = group.team_of(device_of[stage]);
    for (int block = 0; block < plan.shape.stage_blocks[stage]; ++block, ++position) {
      BlockPlan layout = plan.shape.layout_of(position);
      int most = 0;
      for (int rank = 0; team != nullptr && rank < layout.tensor_shares.ranks(); ++rank) {
        if ((*team)[static_cast<std::size_t>(rank)] == pool &&
            layout.tensor_shares.of(rank) > most) {
          most = layout.tensor_shares.of(rank);
          layout.tensor_rank = static_cast<std::int8_t>(rank);
        }
      }
      if (runs.empty() || !(runs.back().layout == layout)) {
        runs.push_back({0, layout});
      }
      ++runs.back().count;
    }
  }
  view.blocks = std::move(runs);
}

namespace {

// Whether two groups in a row of which replicas share experts are `unlike` each other.
template <typename Unlike>
bool shares_experts_between(const MixedPlan& plan, Unlike unlike) {
  for (const BlockRun& run : plan.shape.blocks) {
    const int sharing = expert_replicas(run.layout);
    int place = 0;  // of a group's first replica among those it shares experts with
    for (std::size_t group = 0; group < plan.groups.size(); ++group) {
      if (place > 0 && unlike(plan.groups[group - 1], plan.groups[group])) {
        return true;
      }
      place = (place + plan.groups[group].replicas) % sharing;
    }
  }
  return false;
}

}  // namespace

bool MixedPlan::share_experts(const ReplicaGroup& one, const ReplicaGroup& other) const {
  const auto first_of = [&](const ReplicaGroup& group) {
    int first = 0;
    for (const ReplicaGroup* before = groups.data(); before != &group; ++before) {
      first += before->replicas;
    }
    return first;
  };
  return std::any_of(shape.blocks.begin(), shape.blocks.end(), [&](const BlockRun& run) {
    const int sharing = expert_replicas(run.layout);
    const auto last_of = [&](const ReplicaGroup& group) {
      return first_of(group) + group.replicas - 1;
    };
    return sharing > 1 && first_of(one) / sharing <= last_of(other) / sharing &&
           first_of(other) / sharing <= last_of(one) / sharing;
  });
}

bool MixedPlan::shares_experts_between_groups() const {
  return shares_experts_between(*this,
                                [](const ReplicaGroup&, const ReplicaGroup&) { return true; });
}

bool MixedPlan::shares_experts_between_pools(int device) const {
  const auto at = static_cast<std::size_t>(device);
  return shares_experts_between(*this, [at](const ReplicaGroup& a, const ReplicaGroup& b) {
    return a.ranks_of(at) != b.ranks_of(at);
  });
}

bool MixedPlan::runs_in_step() const {
  if (groups.size() < 2) {
    return false;
  }
  return shares_experts_between_groups() ||
         std::any_of(shape.blocks.begin(), shape.blocks.end(),
                     [](const BlockRun& run) { return run.layout.zero_stage >= 2; });
}

// All replicas wait for the slowest chip, whichever pool it is in. Pools that no group uses count,
// too: one view serves all plans of a machine.
Plan pool_view(const MixedPlan& plan, std::size_t pool) {
  Plan view = plan.shape;
  view.cluster = plan.machine->cluster.pools[pool].cluster;
  view.profile = plan.machine->profiles[pool];
  view.gpus_alike = 0;
  for (const topologies::Pool& other : plan.machine->cluster.pools) {
    if (other.cluster.gpu.name == view.cluster.gpu.name) {
      view.gpus_alike += other.cluster.num_gpus();
    }
  }
  return view;
}

std::string replicas_text(const MixedPlan& plan) {
  std::string text;
  for (const ReplicaGroup& group : plan.groups) {
    text += fmt::format("{}{} replica{} of {} micro-batches on ", text.empty() ? "" : "; ",
                        group.replicas, group.replicas == 1 ? "" : "s", group.micro_batches);
    for (std::size_t first = 0; first < group.pools.size();) {
      std::size_t end = first + 1;
      while (end < group.pools.size() && group.pools[end] == group.pools[first] &&
             (group.teams.empty() || group.teams[end] == group.teams[first])) {
        ++end;
      }
      std::string kinds;
      for (const int pool : group.pools_of(first)) {
        const std::vector<int>* team = group.team_of(first);
        kinds += kinds.empty() ? "" : " + ";
        kinds += team == nullptr
                     ? plan.pool(pool).name
                     : fmt::format("{} {}", std::count(team->begin(), team->end(), pool),
                                   plan.pool(pool).name);
      }
      text += fmt::format("{}{} x {}", first == 0 ? "" : ", ",
                          group.team_of(first) == nullptr ? kinds : "(" + kinds + ")", end - first);
      first = end;
    }
  }
  return text;
}

}  // namespace orrery::plan
