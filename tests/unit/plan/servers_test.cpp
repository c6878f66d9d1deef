// SPDX-License-Identifier: Apache-2.0
// Parameter servers in plans: what moves, who waits, and how stale parameters are.
#include "plan/stage/servers.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.hpp"
#include "plan/simulation/simulate.hpp"
#include "tests/unit/plan/pipeline_fixture.hpp"

namespace orrery::plan {
namespace {

using testing::HasSubstr;

Plan workers(const std::string& schedule, int pp, int micro_batches) {
  Plan plan = in_pipeline(small_plan(), schedule,
                          {.pp = pp, .dp = 16 / pp, .tp = 1, .micro_batches = micro_batches});
  plan.blocks.front().layout.zero_stage = 0;
  return plan;
}

SimTime service_of(const Plan& plan) {
  BlockCosts costs(plan);
  std::vector<StageCost> stages;
  for (const StageContent& content : stage_contents(plan)) {
    stages.push_back(add_up_stage(content, plan, costs));
  }
  return service_time(plan, stages, costs);
}

// A wave cannot be shorter than its passes or its push, and the clock only makes workers wait.
TEST(Servers, BoundTheWavesOfPipelines) {
  for (const int wave : {4, 16}) {
    Plan plan = workers("hetpipe", 4, wave);
    ASSERT_EQ(problem(plan), "");
    const Seconds push = to_seconds(service_of(plan));
    EXPECT_GT(push, Seconds());
    Seconds before;
    for (const int distance : {4, 0}) {
      plan.clock_distance = distance;
      Simulator simulator(plan);
      const Simulation result = simulator.run(plan);
      EXPECT_FALSE(result.synchronous);
      EXPECT_EQ(result.staleness, (distance + 1) * wave + wave - 2);
      EXPECT_GE(result.iteration_time * (1 + 1e-9), push);
      EXPECT_GE(result.iteration_time * (1 + 1e-9), simulator.lower_bound(plan));
      EXPECT_GE(result.iteration_time * (1 + 1e-9), before);
      EXPECT_EQ(result.memory.size(), 4u);
      before = result.iteration_time;
    }
  }
}

// The bytes of a wave do not depend on its micro-batches, those of a micro-batch do.
TEST(Servers, MoveTheSameForEveryWave) {
  EXPECT_EQ(service_of(workers("hetpipe", 4, 4)), service_of(workers("hetpipe", 4, 16)));
  Plan one = workers("hetpipe", 4, 8);
  const SimTime all = service_of(one);
  one.servers = 1;  // on one of the two nodes
  EXPECT_GT(service_of(one), all);
  EXPECT_GE(simulate(one).iteration_time, simulate(workers("hetpipe", 4, 8)).iteration_time);
  one.clock_distance = 1;
  EXPECT_EQ(simulate(read_plan(to_json(one), "again")).iteration_time,
            simulate(one).iteration_time);
}

// A node that serves sends and receives at once: of N nodes, with gradients G and parameters P of a
// node, G (1 - 1/s) + P (N - 1)/s one way and the same with G and P swapped the other way.
TEST(Servers, SendAndReceiveAtOnce) {
  const auto time_with = [](int servers, double host_link) {
    Plan plan = in_pipeline(small_plan(small_spec(), "dgx-a100:4"), "hetpipe",
                            {.pp = 1, .dp = 32, .tp = 1, .micro_batches = 4});
    plan.blocks.front().layout.zero_stage = 0;
    plan.servers = servers;
    plan.cluster.node.host_memory_bandwidth = {};
    plan.cluster.node.host_link_per_gpu = BytesPerSecond(host_link);
    return to_seconds(service_of(plan)).value();
  };
  // G : P = 2 : 1, so that for s = 4, 2, 1 what counts is 4.5, 7 and 12 / 2 a rank.
  EXPECT_NEAR(time_with(2, 0) / time_with(4, 0), 7 / 4.5, 0.01);
  EXPECT_NEAR(time_with(1, 0) / time_with(4, 0), 12 / 4.5, 0.01);
}

// A GPU moves its own gradients and parameters over its link, however many servers there are.
TEST(Servers, LeaveTheLinksOfGpusAlone) {
  const auto time_with = [](int servers) {
    Plan plan = workers("hetpipe", 4, 4);
    plan.servers = servers;
    plan.cluster.node.host_memory_bandwidth = {};
    plan.cluster.node.host_link_per_gpu = BytesPerSecond(1e8);
    return service_of(plan);
  };
  EXPECT_EQ(time_with(1), time_with(2));
}

// The step is the longer of the computation and the visits of all workers at a server.
TEST(Servers, AreVisitedInARing) {
  Plan plan = workers("zou-ps-ring", 1, 1);
  for (const int servers : {1, 2}) {
    plan.servers = servers;
    ASSERT_EQ(problem(plan), "");
    const Seconds visits = to_seconds(service_of(plan)) * 16.0;
    const Simulation result = simulate(plan);
    EXPECT_EQ(result.staleness, 1);
    const Seconds compute = result.breakdown.compute + result.breakdown.optimizer;
    EXPECT_NEAR(result.iteration_time.value(), std::max(visits, compute).value(),
                0.1 * result.iteration_time.value())
        << servers;
  }
  // Long steps hide the servers.
  Plan longer = workers("zou-ps-ring", 1, 64);
  longer.servers = 2;
  Plan plain = longer;
  plain.servers = 1;
  EXPECT_NEAR(simulate(longer).iteration_time / simulate(plain).iteration_time, 1.0, 0.02);
}

TEST(Servers, AskForWhatSuitsThem) {
  EXPECT_THAT(problem(workers("zou-ps-ring", 2, 4)), HasSubstr("set pp to 1"));
  Plan plan = workers("hetpipe", 4, 4);
  plan.blocks.front().layout.zero_stage = 1;
  EXPECT_THAT(problem(plan), HasSubstr("set zero_stage to 0"));
  plan = workers("hetpipe", 4, 4);
  plan.servers = 3;
  EXPECT_THAT(problem(plan), HasSubstr("set servers to 2"));
  plan = workers("1f1b", 4, 4);
  plan.servers = 1;
  EXPECT_THAT(problem(plan), HasSubstr("leave them out"));
  plan = workers("zou-ps-ring", 1, 4);
  plan.clock_distance = 2;
  EXPECT_THAT(problem(plan), HasSubstr("hetpipe"));
}

}  // namespace
}  // namespace orrery::plan
