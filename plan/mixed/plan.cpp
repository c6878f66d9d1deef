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

namespace {

const topologies::Pool& pool_at(const MixedPlan& plan, int pool) {
  return plan.machine->cluster.pools[static_cast<std::size_t>(pool)];
}

}  // namespace

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

Plan pool_view(const MixedPlan& plan, std::size_t pool) {
  Plan view = plan.shape;
  view.cluster = plan.machine->cluster.pools[pool].cluster;
  view.profile = plan.machine->profiles[pool];
  return view;
}

namespace {

class Checker {
 public:
  Checker(const MixedPlan& plan, const std::string& where) : plan_(plan), where_(where) {}

  void check() const {
    check_supported();
    check_groups();
    for (std::size_t pool = 0; pool < plan_.num_pools(); ++pool) {
      check_pool(pool);
    }
    for (const ReplicaGroup& group : plan_.groups) {
      for (std::size_t device = 0; device < group.teams.size(); ++device) {
        if (group.team_of(device) != nullptr) {
          check_team(group, device);
        }
      }
    }
    check_gpus();
    for (int device = 0; device < plan_.shape.pp; ++device) {
      check_data_ranks(device);
    }
  }

 private:
  [[noreturn]] void fail(const std::string& message, const std::string& hint = {}) const {
    bad_input(where_, message, hint);
  }

  void check_supported() const {
    const Plan& shape = plan_.shape;
    constexpr const char* kOneKind = "on a cluster of one kind of nodes it can be planned";
    if (shape.blocks.empty()) {
      fail("`blocks` is empty");
    }
    if (shape.serving) {
      fail("a plan of a mixed cluster serves no requests", kOneKind);
    }
    if (shape.network.spec.cascade.layers > 0) {
      fail("a plan of a mixed cluster has one trained backbone", kOneKind);
    }
    if (shape.slices > 1) {
      fail("a plan of a mixed cluster cuts no sequences into slices", kOneKind);
    }
    for (const BlockRun& run : shape.blocks) {
      if (run.layout.offload.any()) {
        fail("a plan of a mixed cluster offloads nothing", kOneKind);
      }
    }
    if (shape.execution.post_validation) {
      fail("replicas of a mixed cluster meet at the gradient norm", "leave post_validation out");
    }
    const ScheduleTraits traits = schedule_traits(shape);
    if (!traits.synchronous || traits.two_directions || traits.shares_output_layer ||
        traits.fills_frozen || traits.by_modules || traits.copies_to_host ||
        traits.spreads_attention || traits.packs_sequences) {
      fail(fmt::format("schedule {}: on a mixed cluster schedules are synchronous, one chain of "
                       "stages, with the output layer on the last",
                       shape.schedule),
           "1f1b, gpipe, interleaved and zero-bubble schedules are");
    }
  }

  void check_groups() const {
    const Plan& shape = plan_.shape;
    std::int64_t replicas = 0;
    std::int64_t micro_batches = 0;
    for (const ReplicaGroup& group : plan_.groups) {
      if (static_cast<int>(group.pools.size()) != shape.pp) {
        fail(fmt::format("a group of `replicas` names {} pools, but pp = {}", group.pools.size(),
                         shape.pp),
             "one pool for each pipeline stage");
      }
      replicas += group.replicas;
      micro_batches += group.replicas * group.micro_batches;
    }
    for (const ReplicaGroup& group : plan_.groups) {
      if (plan_.runs_in_step() && group.micro_batches != plan_.groups.front().micro_batches) {
        const bool states =
            std::any_of(shape.blocks.begin(), shape.blocks.end(),
                        [](const BlockRun& run) { return run.layout.zero_stage >= 2; });
        fail(fmt::format("replicas of {} and of {} micro-batches, but {} meet in every micro-batch",
                         plan_.groups.front().micro_batches, group.micro_batches,
                         states ? "ZeRO-2 and 3" : "replicas of several groups that share experts"),
             states ? "give all replicas equally many, or set zero_stage to 0 or 1"
                    : "give all replicas equally many, or every group whole sets of replicas that "
                      "share experts");
      }
    }
    if (replicas != shape.dp) {
      fail(fmt::format("the counts of `replicas` sum to {}, but dp = {}", replicas, shape.dp));
    }
    if (micro_batches * shape.micro_batch != shape.batch) {
      fail(fmt::format("replicas x micro_batches x micro_batch sum to {} x {}, but batch = {}",
                       micro_batches, shape.micro_batch, shape.batch));
    }
  }

  bool is_used(std::size_t pool) const {
    return std::any_of(plan_.groups.begin(), plan_.groups.end(), [&](const ReplicaGroup& group) {
      return group.uses(static_cast<int>(pool));
    });
  }

  // Tensor-parallel ranks on GPUs of several kinds.
  void check_team(const ReplicaGroup& group, std::size_t device) const {
    const std::vector<int>& team = *group.team_of(device);
    for (const BlockRun& run : plan_.shape.blocks) {
      if (static_cast<int>(team.size()) != run.layout.tp) {
        fail(fmt::format("stage {} names the pools of {} tensor-parallel ranks, but tp = {}",
                         device, team.size(), run.layout.tp),
             "a pool for each rank of axis tp, or one pool for all of them");
      }
    }
    const std::vector<int> kinds = group.pools_of(device);
    if (kinds.size() > 1 && !plan_.machine->cluster.in_same_nodes(kinds)) {
      fail(fmt::format("the tensor-parallel ranks of stage {} are on pools \"{}\" and \"{}\", "
                       "which share no node",
                       device, pool_at(plan_, kinds[0]).name, pool_at(plan_, kinds[1]).name),
           "\"same_nodes\" of the cluster says which pools do");
    }
    const BlockPlan& first = plan_.shape.blocks.front().layout;
    for (const int pool : kinds) {
      const auto ranks = std::count(team.begin(), team.end(), pool) * first.cp;
      const topologies::Pool& here = pool_at(plan_, pool);
      if (ranks > here.cluster.node.gpus) {
        fail(fmt::format("stage {} has {} ranks on pool \"{}\", with {} GPUs a node", device, ranks,
                         here.name, here.cluster.node.gpus),
             "a tensor-parallel group over several pools stays inside a node");
      }
    }
  }

  void check_pool(std::size_t pool) const {
    if (!is_used(pool)) {
      return;
    }
    Plan view = pool_view(plan_, pool);
    for (const ReplicaGroup& group : plan_.groups) {
      set_view(plan_, group.micro_batches, view);
      check_plan_parts(view, where_);
    }
  }

  void check_gpus() const {
    const std::vector<std::int64_t> used = plan_.gpus_used();
    for (std::size_t pool = 0; pool < used.size(); ++pool) {
      const topologies::Pool& here = plan_.machine->cluster.pools[pool];
      if (used[pool] > here.cluster.num_gpus()) {
        fail(fmt::format("the plan needs {} GPUs of pool \"{}\", which has {}", used[pool],
                         here.name, here.cluster.num_gpus()),
             "fewer replicas, or stages on another pool");
      }
    }
  }

  bool has_team(int device) const {
    return std::any_of(plan_.groups.begin(), plan_.groups.end(), [&](const ReplicaGroup& group) {
      return group.team_of(static_cast<std::size_t>(device)) != nullptr;
    });
  }

  // Where the ranks that share a stage's states are of several kinds.
  void check_data_ranks(int device) const {
    if (plan_.pools_of_device(device).size() < 2) {
      return;
    }
    for (const BlockRun& run : plan_.shape.blocks) {
      // Tokens go from each rank to those of its place, if all ranks of a replica have the same
      // experts.
      const bool all_ranks = run.layout.expert_tp == 0 || run.layout.expert_tp == run.layout.tp;
      if (expert_replicas(run.layout) > 1 && has_team(device) && !all_ranks) {
        fail(fmt::format("expert_tp = {} with ep = {}, but stage {} has tensor-parallel ranks on "
                         "different pools",
                         run.layout.expert_tp, run.layout.ep, device),
             "set expert_tp to tp");
      }
      if (reorders_experts(run.layout)) {
        fail(fmt::format("ep_inside = {}, but the replicas of stage {} are on different pools",
                         to_text(run.layout.ep_inside), device),
             "ranks of several replicas are neighbours on one pool alone");
      }
      const BlockPlan& first = plan_.shape.blocks.front().layout;
      if (run.layout.tp != first.tp || run.layout.cp != first.cp) {
        fail(fmt::format("blocks of different tp or cp, but the replicas of stage {} are on "
                         "different pools",
                         device),
             "replicas trade no samples then: give all blocks one tp and cp");
      }
    }
  }

  const MixedPlan& plan_;
  const std::string& where_;
};

}  // namespace

void check_mixed_plan(const MixedPlan& plan, const std::string& where) {
  Checker(plan, where).check();
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
                     ? pool_at(plan, pool).name
                     : fmt::format("{} {}", std::count(team->begin(), team->end(), pool),
                                   pool_at(plan, pool).name);
      }
      text += fmt::format("{}{} x {}", first == 0 ? "" : ", ",
                          group.team_of(first) == nullptr ? kinds : "(" + kinds + ")", end - first);
      first = end;
    }
  }
  return text;
}

}  // namespace orrery::plan
