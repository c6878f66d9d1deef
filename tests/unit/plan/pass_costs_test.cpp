// SPDX-License-Identifier: Apache-2.0
// Messages between stages that run beside the passes still share one link.
#include "plan/stage/pass_costs.hpp"

#include <gtest/gtest.h>

#include "plan/simulation/simulate.hpp"
#include "plan/stages.hpp"
#include "tests/unit/plan/plan_fixture.hpp"

namespace orrery::plan {
namespace {

// Four stages, one GPU a node, over a network of the given rate and latency.
Plan slow_plan(const std::string& schedule, const std::string& rate, const std::string& latency) {
  Plan plan = small_plan(small_spec(), "dgx-a100:1");
  plan.cluster = topologies::load_cluster(
      "dgx-a100:4", {"node.gpus=1", "node.scale_out.nics=1", "node.scale_out.nic_bandwidth=" + rate,
                     "node.scale_out.latency=" + latency});
  plan.blocks.front().layout = {};
  plan.schedule = schedule;
  plan.pp = 4;
  plan.dp = 1;
  plan.chunks = 1;
  plan.micro_batch = 1;
  plan.batch = 32;
  plan.stage_blocks = even_stages(plan.network, 4);
  plan.execution.overlap_p2p = true;
  return plan;
}

double seconds(const Plan& plan) { return simulate(plan).iteration_time.value(); }

// 32 messages each way over one link.
double link_seconds(const Plan& plan, double rate) {
  const double bytes = 2.0 * static_cast<double>(plan.sequence * plan.network.spec.hidden) * 32 * 2;
  return bytes / rate;
}

TEST(PassCosts, AllForwardsFirstAreAsFastAsTheLink) {
  const Plan plan = slow_plan("gpipe", "1 Gbit/s", "10 us");
  const double link = link_seconds(plan, 1e9 / 8);
  EXPECT_GT(seconds(plan), link);
  EXPECT_LT(seconds(plan), 2.5 * link);  // a socket reaches part of the nominal rate
}

TEST(PassCosts, LatencyIsPaidOnceAStage) {
  const double fast = seconds(slow_plan("gpipe", "1 Gbit/s", "10 us"));
  const double late = seconds(slow_plan("gpipe", "1 Gbit/s", "50 ms"));
  EXPECT_GT(late, fast + 0.1);
  // Three hops, forth and back, each with a handshake of up to two more latencies; not 32 messages.
  EXPECT_LT(late, fast + 0.05 * 3 * 2 * 3);
}

TEST(PassCosts, MessagesShorterThanAPassAreHidden) {
  Plan plan = slow_plan("gpipe", "3200 Gbit/s", "1 us");
  const double hidden = seconds(plan);
  plan.execution.overlap_p2p = false;
  EXPECT_LT(hidden, seconds(plan));
  plan.execution.overlap_p2p = true;
  plan.schedule = "1f1b";
  EXPECT_NEAR(hidden, seconds(plan), 0.02 * hidden);
}

// What holds a message up is the part of a backward before it: a cut one is no shorter than its
// message, however long its weight gradients are.
TEST(PassCosts, InputGradientsWaitForTheLink) {
  Plan plan = slow_plan("zb-h1", "100 Gbit/s", "1 us");
  plan.batch = 4;
  const auto micros = [](std::int64_t count) { return SimTime{count * 1'000'000}; };
  std::vector<StageCost> stages(4);
  for (StageCost& stage : stages) {
    stage.forward = micros(20);
    stage.backward = stage.last_backward = micros(12);
  }
  const std::vector<SimTime> sends(3, micros(11));
  BlockCosts costs(plan);
  for (const std::int64_t weight_grad : {1, 8, 30}) {
    const std::vector<SplitTimes> splits(4, {micros(4), micros(weight_grad)});
    const sim::PipelineCosts passes = separate_costs(plan, costs, stages, sends, splits);
    EXPECT_EQ(passes.input_grad[1], micros(10));
    EXPECT_EQ(passes.weight_grad[1], micros(weight_grad));
    EXPECT_EQ(passes.send_backward[0], micros(5));
    EXPECT_EQ(passes.input_grad[0], micros(4));  // sends none
  }
  EXPECT_EQ(separate_costs(plan, costs, stages, sends, {}).backward[1], micros(12));
}

// All stages gather their parameters from the start of the step on: the first forward of a stage
// ends with its parameters or a pass after its input, and waits of earlier stages are time for the
// later ones' parameters.
TEST(PassCosts, FirstForwardsDoNotWaitForTheSameTimeTwice) {
  const Plan plan = slow_plan("1f1b", "100 Gbit/s", "1 us");
  BlockCosts costs(plan);
  std::vector<StageCost> stages(4);
  const std::vector<std::int64_t> gathered = {100, 100, 180, 200};
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    stages[stage].forward = SimTime{10};
    stages[stage].gathered_forward = SimTime{gathered[stage]};
  }
  const std::vector<SimTime> sends(3, SimTime{5});
  const sim::PipelineCosts passes = pipeline_costs(plan, costs, stages, sends, {});
  // Ends at 100, 115, 180 (50 after its pass would have) and 195 + 5.
  const std::vector<SimTime> expected = {SimTime{90}, SimTime{0}, SimTime{50}, SimTime{5}};
  EXPECT_EQ(passes.first_forward_extra, expected);
}

// In step, what is late in a stage is what the slower first stage leaves to wait for.
TEST(PassCosts, FirstForwardsOfReplicasInStepBeginTogether) {
  const Plan plan = slow_plan("1f1b", "100 Gbit/s", "1 us");
  BlockCosts costs(plan);
  std::vector<StageCost> fast(4);
  for (StageCost& stage : fast) {
    stage.forward = SimTime{10};
    stage.gathered_forward = SimTime{100};
  }
  std::vector<StageCost> slow = fast;
  slow.front().gathered_forward = slow.front().forward = SimTime{60};
  fast.front().gathered_forward = SimTime{10};
  const std::vector<SimTime> sends(3, SimTime{5});
  const std::vector<StageChain> chains = {{fast, sends}, {slow, sends}};
  const std::vector<SimTime> arrivals = first_arrivals(chains);
  EXPECT_EQ(arrivals, (std::vector<SimTime>{SimTime{0}, SimTime{65}, SimTime{105}, SimTime{120}}));
  const std::vector<SimTime> alone = {SimTime{0}, SimTime{75}, SimTime{0}, SimTime{0}};
  EXPECT_EQ(pipeline_costs(plan, costs, fast, sends, {}).first_forward_extra, alone);
  const std::vector<SimTime> together = {SimTime{0}, SimTime{25}, SimTime{0}, SimTime{0}};
  EXPECT_EQ(separate_costs(plan, costs, fast, sends, {}, arrivals).first_forward_extra, together);
}

// Two chunks a device: what the second one needs is gathered behind the first one's.
TEST(PassCosts, ChunksOfADeviceGatherOneAfterTheOther) {
  Plan plan = slow_plan("interleaved", "100 Gbit/s", "1 us");
  plan.chunks = 2;
  plan.stage_blocks = even_stages(plan.network, 8);
  std::vector<StageCost> stages(8);
  for (StageCost& stage : stages) {
    stage.forward = SimTime{10};
    stage.gathered_forward = stage.gather_total = SimTime{100};
  }
  const std::vector<std::uint16_t> device_of = {0, 1, 2, 3, 0, 1, 2, 3};
  queue_gathers(plan, device_of, stages);
  const auto before = [&](std::size_t stage) { return stages[stage].gathers_before; };
  EXPECT_EQ(before(3), SimTime{0});
  EXPECT_EQ(before(4), SimTime{100});
  BlockCosts costs(plan);
  const std::vector<SimTime> sends(7, SimTime{5});
  const sim::PipelineCosts passes = pipeline_costs(plan, costs, stages, sends, {});
  // The first four end at 100, 115, 130, 145; the fifth at 200 instead of 160, with its parameters.
  const std::vector<SimTime> expected = {SimTime{90}, {}, {}, {}, SimTime{40}, {}, {}, {}};
  EXPECT_EQ(passes.first_forward_extra, expected);

  plan.execution.overlap_param_gather = false;  // at the end of the step, all of them
  for (StageCost& stage : stages) {
    stage.gathers_before = {};
  }
  queue_gathers(plan, device_of, stages);
  EXPECT_EQ(before(4), SimTime{0});
}

}  // namespace
}  // namespace orrery::plan
