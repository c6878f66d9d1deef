// SPDX-License-Identifier: Apache-2.0
// The search of serving plans on clusters whose devices are too small or whose links are slow.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/search/served_search.hpp"

namespace orrery::search {
namespace {

// 26 GB of parameters on a GPU of 16: layers come from the host, unless that is ruled out.
TEST(ServingTiers, ParametersThatDoNotFitComeFromTheHost) {
  const plan::Plan base = served_base_plan("llama2-13b", "p3-2xlarge:1");
  const std::string space = "token_budget=512,max_requests=256,prefill=chunked,nano_batches=1";
  const ServingOutcome outcome = search_serving(base, fixed_serving(space, 5));
  ASSERT_EQ(outcome.found.size(), 2u);
  EXPECT_TRUE(outcome.streams);
  EXPECT_EQ(outcome.plans, 4);  // all on the device; all layers away, half, a quarter
  for (const ServingFound& found : outcome.found) {
    EXPECT_GT(found.simulation.memory.front().host_parameters, ByteCount());
    EXPECT_NO_THROW(check_plan(found.plan, "found"));
  }
  const ServingOutcome here =
      search_serving(base, fixed_serving(space + ",offload_parameters=device", 5));
  EXPECT_TRUE(here.found.empty());
  EXPECT_THAT(here.nearest, ::testing::HasSubstr("tp = 2"));
  // Seven of ten layers.
  const ServingOutcome third =
      search_serving(base, fixed_serving(space + ",offload_parameters=host,offload_share=0.7,"
                                                 "gathers_in_flight=3,fetched_together=2",
                                         1));
  ASSERT_EQ(third.found.size(), 1u);
  const plan::Plan& plan = third.found.front().plan;
  int away = 0;
  for (const plan::BlockRun& run : plan.blocks) {
    away += run.layout.offload.parameters == plan::Tier::Host ? run.count : 0;
  }
  EXPECT_EQ(away, 28);
  EXPECT_EQ(plan.execution.gathers_in_flight, 3);
  EXPECT_EQ(plan.execution.fetched_together, 2);
}

TEST(ServingTiers, SlowLinksAreAskedForMessages) {
  plan::Plan base = served_base_plan("llama3-8b", "p3-2xlarge:8");
  const std::string space = "tp=8,token_budget=512,max_requests=256,prefill=chunked,nano_batches=1";
  EXPECT_EQ(
      search_serving(base, fixed_serving(space, 1)).found.front().plan.serving->options.all_reduce,
      plan::AllReduce::Nccl);
  base.cluster.node.scale_out.latency = Seconds(1e-3);
  const ServingOutcome slow = search_serving(base, fixed_serving(space, 1));
  EXPECT_EQ(slow.found.front().plan.serving->options.all_reduce, plan::AllReduce::Fastest);
  const ServingOutcome star = search_serving(base, fixed_serving(space + ",all_reduce=star", 1));
  EXPECT_LE(slow.found.front().simulation.makespan, star.found.front().simulation.makespan);
}

}  // namespace
}  // namespace orrery::search
