// SPDX-License-Identifier: Apache-2.0
// LayerPipe in plans: where states and activations are, what travels, and what it asks for.
#include "plan/stage/arcs.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "plan/block/memory_facts.hpp"
#include "plan/replay/memory_replay.hpp"
#include "plan/simulation/simulate.hpp"
#include "plan/stages.hpp"
#include "tests/unit/plan/plan_fixture.hpp"

namespace orrery::plan {
namespace {

using testing::HasSubstr;

Plan arcs(const std::string& schedule = "layerpipe", int chunks = 2) {
  Plan plan = small_plan();
  plan.pp = 4;
  plan.dp = 1;
  plan.batch = 16;
  plan.schedule = schedule;
  plan.chunks = chunks;
  plan.stage_blocks = even_stages(plan.network, plan.pp * plan.chunks);
  check_plan(plan, "test");
  return plan;
}

Plan with_links(Plan plan, double times) {
  plan.cluster.node.scale_up.bandwidth_per_gpu *= times;
  plan.cluster.node.scale_up.nccl_bandwidth *= times;
  plan.cluster.node.scale_out.nic_bandwidth *= times;
  return plan;
}

// Gradients and optimizer are where updates run, each stage's once; parameters also where passes
// use them.
TEST(Arcs, HoldEveryStateOnce) {
  const Plan plan = arcs();
  const Plan whole = arcs("pipedream", 1);
  const std::vector<StageMemory> memory = Simulator(plan).memory(plan);
  const std::vector<StageMemory> stages = Simulator(whole).memory(whole);
  ByteCount gradients;
  ByteCount optimizer;
  ByteCount parameters;
  ByteCount of_stages[3];
  for (std::size_t d = 0; d < 4; ++d) {
    gradients += memory[d].gradients;
    optimizer += memory[d].optimizer;
    parameters += memory[d].parameters;
    of_stages[0] += stages[d].gradients;
    of_stages[1] += stages[d].optimizer;
    of_stages[2] += stages[d].gradients;
  }
  EXPECT_EQ(gradients, of_stages[0]);
  EXPECT_EQ(optimizer, of_stages[1]);
  EXPECT_GT(parameters, ByteCount(of_stages[2].value() / 2));  // gradients are fp32
  EXPECT_EQ(memory[0].gradients, ByteCount());                 // forwards alone
  EXPECT_GT(memory[3].gradients, ByteCount());
}

TEST(Arcs, ReportStalenessAndAPeriodThatLinksBound) {
  const Plan plan = arcs();
  const Simulation usual = simulate(plan);
  EXPECT_FALSE(usual.synchronous);
  EXPECT_EQ(usual.staleness, 3);  // arcs between the first forward and its update
  EXPECT_GE(usual.weight_versions, 4);
  const Simulation fast = simulate(with_links(plan, 1000));
  const Simulation slow = simulate(with_links(plan, 0.1), {.record_spans = true});
  EXPECT_LE(fast.steady_period, usual.steady_period);
  EXPECT_EQ(slow.steady_period, to_seconds(busiest_link(slow.order, slow.passes)));
  EXPECT_GT(slow.steady_period, usual.steady_period * 2);
  EXPECT_NEAR(fast.iteration_time / fast.steady_period, 16.0, 1e-6);
}

// Everything on one device: no messages, and one pass after the other.
TEST(Arcs, OfOneDeviceAreALoop) {
  Plan plan = arcs();
  plan.pp = 1;
  plan.dp = 4;
  plan.stage_blocks = even_stages(plan.network, 2);
  ASSERT_EQ(problem(plan), "");
  const Simulation one = simulate(plan);
  EXPECT_EQ(one.staleness, 0);
  EXPECT_EQ(simulate(with_links(plan, 1.0)).steady_period, one.steady_period);
  EXPECT_LT(one.bubble_fraction, 1e-9);
}

TEST(Arcs, MessagesFollowThePasses) {
  const Plan plan = arcs();
  Simulator simulator(plan);
  const Simulation run = simulator.run(plan, {.record_spans = true});
  ASSERT_EQ(run.passes.edge_latency.size(), run.order.edges.size());
  for (std::size_t e = 0; e < run.order.edges.size(); ++e) {
    const sim::Edge& edge = run.order.edges[e];
    const bool crosses = sim::device_of(run.order, edge.from_lane, edge.from) !=
                         sim::device_of(run.order, edge.to_lane, edge.to);
    const bool to_third = edge.from_lane == sim::Lane::Optimizer;  // and to the input gradient
    EXPECT_TRUE(to_third || (run.passes.edge_latency[e] > SimTime{}) == crosses) << e;
  }
  EXPECT_LE(to_seconds(busiest_link(run.order, run.passes)), run.steady_period);
}

TEST(Arcs, SayWhatTheyDoNotTake) {
  Plan plan = arcs();
  plan.blocks.front().layout.zero_stage = 2;
  EXPECT_THAT(problem(plan), HasSubstr("set zero_stage to 1"));
  plan = arcs();
  plan.execution.overlap_p2p = false;
  EXPECT_THAT(problem(plan), HasSubstr("set overlap_p2p to true"));
  plan = arcs();
  plan.blocks.front().layout.offload.activations = 0.5;
  EXPECT_THAT(problem(plan), HasSubstr("offload nothing"));
  EXPECT_TRUE(replay_memory(arcs(), {}, 1).empty());  // other devices decide what is freed
}

}  // namespace
}  // namespace orrery::plan
