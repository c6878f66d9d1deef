// SPDX-License-Identifier: Apache-2.0
// Parameters that every rank broadcasts after the step, one rank after the other.
#include "plan/stage/parameter_broadcasts.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "plan/block_rules.hpp"
#include "plan/simulation/simulate.hpp"
#include "plan/stages.hpp"
#include "tests/unit/plan/plan_fixture.hpp"

namespace orrery::plan {
namespace {

Plan broadcasting_plan_on(const std::string& cluster, int ranks) {
  Plan plan = small_plan(small_spec(), cluster);
  plan.cluster.node.gpus = std::min(plan.cluster.node.gpus, ranks);
  plan.dp = ranks;
  plan.pp = 1;
  plan.batch = ranks;
  plan.stage_blocks = even_stages(plan.network, 1);
  plan.blocks.front().layout = {.zero_stage = 1};
  plan.execution.overlap_param_gather = false;
  check_plan(plan, "test");
  return plan;
}

double seconds(Plan plan, bool broadcasts) {
  plan.execution.broadcasts_parameters = broadcasts;
  return simulate(plan).iteration_time.value();
}

double ring_latency(const Plan& plan) {
  const Mesh mesh = mesh_of(plan.layout_of(0), plan.dp);
  return BlockCosts(plan)
      .collectives()
      .ring_latency(group_of(mesh, {Axis::Shard}, plan.cluster.node.gpus))
      .value();
}

std::int64_t num_weights(const Plan& plan) {
  std::int64_t weights = 0;
  for (const int block : plan.network.chain) {
    for (const models::Tensor& tensor :
         plan.network.blocks[static_cast<std::size_t>(block)].tensors) {
      weights += tensor.kind == models::TensorKind::Weight && !tensor.tied ? 1 : 0;
    }
  }
  return weights;
}

TEST(ParameterBroadcastsTest, EveryRankOfANodeAddsARoundOfTheRing) {
  const Plan plan = broadcasting_plan_on("dgx-a100:2", 16);
  ASSERT_GT(num_weights(plan), 16);
  // 14 next roots stand in the same node, one in the other of two.
  EXPECT_NEAR(seconds(plan, true) - seconds(plan, false), 14.5 * ring_latency(plan), 1e-9);
}

TEST(ParameterBroadcastsTest, RanksWithoutATensorBroadcastNothing) {
  const Plan plan = broadcasting_plan_on("dgx-a100:64", 512);
  const std::int64_t weights = num_weights(plan);
  ASSERT_LT(weights, 512);
  const auto crossings = static_cast<double>((weights - 1) / 8);
  EXPECT_NEAR(seconds(plan, true) - seconds(plan, false),
              (static_cast<double>(weights - 1) - crossings * 63 / 64) * ring_latency(plan), 1e-9);
  // 448 hops inside nodes and 63 between them, at NCCL's constants or more.
  EXPECT_GT(ring_latency(plan), 448 * 3.4e-6 + 63 * 14e-6);
}

TEST(ParameterBroadcastsTest, WholeStatesAndOneRankNeedNone) {
  Plan plan = broadcasting_plan_on("dgx-a100:2", 16);
  plan.blocks.front().layout.zero_stage = 0;
  EXPECT_EQ(seconds(plan, true), seconds(plan, false));
  plan = broadcasting_plan_on("dgx-a100:1", 1);
  EXPECT_EQ(seconds(plan, true), seconds(plan, false));
}

}  // namespace
}  // namespace orrery::plan
