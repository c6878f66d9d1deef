// SPDX-License-Identifier: Apache-2.0
// Small plans on clusters of several kinds of nodes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "plan/mixed/simulate.hpp"
#include "tests/unit/plan/plan_fixture.hpp"

namespace orrery::plan {

// pp = 2, tp = 4, dp = 2, both replicas with the first stage on the first pool.
inline MixedPlan mixed_plan(const std::string& cluster = "hgx-h100:1+dgx-a100:1",
                            const std::vector<std::string>& overrides = {}) {
  auto machine = std::make_shared<MixedMachine>();
  machine->cluster = topologies::load_mixed_cluster(cluster, overrides);
  for (const topologies::Pool& pool : machine->cluster.pools) {
    machine->profiles.push_back(costmodel::load_profile("", pool.cluster.gpu));
  }
  MixedPlan plan;
  plan.shape = small_plan();
  plan.shape.cluster = machine->cluster.pools.front().cluster;
  plan.shape.profile = machine->profiles.front();
  const int last = static_cast<int>(machine->profiles.size()) - 1;
  plan.machine = std::move(machine);
  plan.groups = {{.replicas = 2, .micro_batches = 32, .pools = {0, last}}};
  return plan;
}

// small_plan() of a schedule, with two chunks where it needs them, and a ZeRO stage.
inline Plan small_plan_of(const std::string& schedule, int zero) {
  Plan plan = small_plan();
  plan.schedule = schedule;
  plan.chunks = schedule == "interleaved" || schedule == "zb-v" ? 2 : 1;
  plan.stage_blocks = even_stages(plan.network, plan.pp * plan.chunks);
  plan.blocks.front().layout.zero_stage = zero;
  return plan;
}

// The same plan on one kind of nodes.
inline MixedPlan as_mixed(const Plan& plan) {
  auto machine = std::make_shared<MixedMachine>();
  machine->cluster.name = plan.cluster.name;
  machine->cluster.pools = {{"all", plan.cluster}};
  machine->profiles = {plan.profile};
  MixedPlan mixed;
  mixed.shape = plan;
  mixed.machine = std::move(machine);
  mixed.groups = {{.replicas = plan.dp,
                   .micro_batches = plan.num_micro_batches(),
                   .pools = std::vector<int>(static_cast<std::size_t>(plan.pp), 0)}};
  return mixed;
}

}  // namespace orrery::plan
