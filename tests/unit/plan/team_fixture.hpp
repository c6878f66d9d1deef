// SPDX-License-Identifier: Apache-2.0
// Pools whose GPUs are in the same node, and plans with tensor-parallel groups over both.
#pragma once

#include <string>
#include <vector>

#include "plan/mixed/simulate.hpp"
#include "plan/stages.hpp"
#include "tests/unit/plan/plan_fixture.hpp"

namespace orrery::plan {

// One node with `gpus` of each of two kinds.
inline topologies::MixedCluster shared_nodes(const std::string& fast, const std::string& slow,
                                             int gpus,
                                             const std::vector<std::string>& of_slow = {}) {
  const std::string size = "node.gpus=" + std::to_string(gpus);
  std::vector<std::string> overrides = of_slow;
  overrides.push_back(size);
  const auto pool = [](const char* name, const topologies::Cluster& cluster) {
    return Json::Object{{"name", name}, {"cluster", cluster.document}};
  };
  Json document = Json::Object{
      {"schema", "orrery-mixed-cluster"},
      {"version", 1},
      {"name", "one-box"},
      {"pools", Json::Array{pool("fast", topologies::load_cluster(fast + ":1", {size})),
                            pool("slow", topologies::load_cluster(slow + ":1", overrides))}},
      {"same_nodes", Json::Array{Json::Array{"fast", "slow"}}}};
  return topologies::read_mixed_cluster(document, "one-box");
}

// tp = the team's ranks, dp = 1; all stages on the team.
inline MixedPlan plan_on(const topologies::MixedCluster& cluster, const std::vector<int>& team,
                         const std::vector<int>& shares, int pp = 1) {
  auto machine = std::make_shared<MixedMachine>();
  machine->cluster = cluster;
  for (const topologies::Pool& pool : cluster.pools) {
    machine->profiles.push_back(costmodel::load_profile("", pool.cluster.gpu));
  }
  MixedPlan plan;
  plan.shape = small_plan();
  plan.shape.cluster = cluster.pools.front().cluster;
  plan.shape.profile = machine->profiles.front();
  plan.machine = std::move(machine);
  plan.shape.dp = pp;  // as many replicas as stages
  plan.shape.pp = pp;
  plan.shape.batch = 8;
  plan.shape.stage_blocks = even_stages(plan.shape.network, pp);
  BlockPlan& layout = plan.shape.blocks.front().layout;
  layout.tp = static_cast<int>(team.size());
  layout.zero_stage = 0;
  layout.tensor_shares = TensorShares(shares);
  ReplicaGroup group{.replicas = pp, .micro_batches = 8 / pp, .pools = {}};
  group.pools.assign(static_cast<std::size_t>(pp), team.front());
  group.teams.assign(static_cast<std::size_t>(pp), team);
  plan.groups = {group};
  return plan;
}

}  // namespace orrery::plan
