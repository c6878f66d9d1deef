// SPDX-License-Identifier: Apache-2.0
// A plan for a cluster of several kinds of nodes (docs/mixed-clusters.md). All replicas of the
// model have the same stages and layouts; what differs is on which pool each stage of a replica
// runs and how many micro-batches the replica takes. So stages may be on different GPUs, replicas
// may be on different GPUs with uneven shares of the batch, or both.
//   sum of replicas = dp,  sum of replicas x micro_batches x micro_batch = batch
//   ranks on a pool = tp x cp x (stages of replicas on it) <= GPUs of the pool; others stay idle.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "plan/plan.hpp"
#include "topologies/mixed_cluster.hpp"

namespace orrery::plan {

// Replicas that run on the same pools.
struct ReplicaGroup {
  int replicas = 1;
  std::int64_t micro_batches = 1;  // of each, per iteration
  std::vector<int> pools;          // by pipeline device
  // By pipeline device the pools of its tensor-parallel ranks, where those are GPUs of several
  // kinds in one node; `pools` then has the first of them. Empty: none has.
  std::vector<std::vector<int>> teams = {};
  // Null: all ranks of the device are on its pool.
  const std::vector<int>* team_of(std::size_t device) const {
    return teams.empty() || teams[device].empty() ? nullptr : &teams[device];
  }
  std::vector<int> pools_of(std::size_t device) const;  // ascending, each once
  // The team of a device, or its pool alone.
  std::vector<int> ranks_of(std::size_t device) const;
  bool uses(int pool) const;
  bool operator==(const ReplicaGroup&) const = default;
};

// What all plans of a search share.
struct MixedMachine {
  topologies::MixedCluster cluster;
  std::vector<costmodel::Profile> profiles;  // by pool
};

struct MixedPlan {
  Plan shape;  // dp = all replicas; cluster and profile are those of the first pool
  std::shared_ptr<const MixedMachine> machine;
  std::vector<ReplicaGroup> groups;

  std::size_t num_pools() const { return machine->profiles.size(); }
  const topologies::Pool& pool(int index) const {
    return machine->cluster.pools[static_cast<std::size_t>(index)];
  }
  // GPUs that a plan uses of every pool.
  std::vector<std::int64_t> gpus_used() const;
  std::int64_t num_gpus() const;
  // Pools of the replicas of one pipeline device, ascending.
  std::vector<int> pools_of_device(int device) const;
  // Whether replicas that share experts, so many in the order of `groups`, are of several groups.
  bool shares_experts_between_groups() const;
  // Whether replicas of two of its groups are among the same ones that share experts.
  bool share_experts(const ReplicaGroup& one, const ReplicaGroup& other) const;
  // Whether groups of which replicas share experts have a pipeline device on unlike pools.
  bool shares_experts_between_pools(int device) const;
  // Whether groups of replicas meet in every micro-batch: they share gradients or parameters of a
  // stage that are sharded (ZeRO-2 and 3), or experts.
  bool runs_in_step() const;
};

// `plan` as the ranks of one pool see it: its cluster, and batch such that every replica has
// `micro_batches`. `set_view` changes what differs between plans of one machine, nothing else.
Plan pool_view(const MixedPlan& plan, std::size_t pool);
void set_view(const MixedPlan& plan, std::int64_t micro_batches, Plan& view);
// In the view of a pool, blocks whose tensor-parallel ranks are on several pools have the bytes of
// the rank that holds most of those on this one.
void set_ranks(const MixedPlan& plan, const ReplicaGroup& group, int pool, Plan& view);

// Error naming the field at fault; says, too, what plans of mixed clusters cannot have.
void check_mixed_plan(const MixedPlan& plan, const std::string& where);

// "2 replicas of 24 micro-batches on hgx-h100 x 2, dgx-a100 x 2"
std::string replicas_text(const MixedPlan& plan);

// The document ("schema": "orrery-mixed-plan", "version": 1).
bool is_mixed_plan(const Json& document);
Json to_json(const MixedPlan& plan);
MixedPlan read_mixed_plan(const Json& document, const std::string& where);

}  // namespace orrery::plan
