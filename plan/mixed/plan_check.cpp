// SPDX-License-Identifier: Apache-2.0
// What a plan over unlike GPUs must satisfy beyond the rules of its views of one pool.
#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "plan/block_rules.hpp"
#include "plan/mixed/plan.hpp"
#include "plan/plan_parts.hpp"
#include "plan/schedule_traits.hpp"
#include "plan/stage/plan_schedule.hpp"

namespace orrery::plan {

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
    if (!shape.packs.empty()) {
      fail("a plan of a mixed cluster has sequences of one length, no packs", kOneKind);
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
    if (traits.recomputes || traits.lists_updates) {
      fail(fmt::format("schedule {}: on a mixed cluster blocks say what is recomputed, and stages "
                       "update at the end of a step",
                       shape.schedule),
           "leave passes R and U, or \"recompute\", out of the document");
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
                       device, plan_.pool(kinds[0]).name, plan_.pool(kinds[1]).name),
           "\"same_nodes\" of the cluster says which pools do");
    }
    const BlockPlan& first = plan_.shape.blocks.front().layout;
    for (const int pool : kinds) {
      const auto ranks = std::count(team.begin(), team.end(), pool) * first.cp;
      const topologies::Pool& here = plan_.pool(pool);
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
      const bool all_ranks = expert_tensor_ranks(run.layout) == run.layout.tp;
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

}  // namespace orrery::plan
