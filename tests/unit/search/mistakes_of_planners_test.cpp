// SPDX-License-Identifier: Apache-2.0
// Mistakes that published planners make, each as a test that fails if it were made here.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/error.hpp"
#include "plan/replay/memory_replay.hpp"
#include "search/problems/galvatron_cost.hpp"
#include "search/problems/pareto_chain.hpp"
#include "tests/unit/search/small_search.hpp"

namespace orrery::search {
namespace {

Options with(const std::string& fix, int jobs = 1) {
  Options options;
  options.jobs = jobs;
  if (!fix.empty()) {
    options.constraints.fix(fix);
  }
  return options;
}

plan::Plan plan_with(const std::string& fix, const plan::Plan& base = base_plan()) {
  return search(base, with(fix)).best.value().plan;
}

Seconds time_of(const plan::Plan& plan) { return plan::simulate(plan).iteration_time; }

// The time that a search reports is that of its plan, and no plan of the space has a smaller one.
TEST(MistakesOfPlanners, WhatIsMinimisedIsWhatIsReported) {
  const plan::Plan base = base_plan();
  const Outcome outcome = search(base, with("schedule=1f1b"));
  ASSERT_TRUE(outcome.best);
  EXPECT_EQ(time_of(outcome.best->plan), outcome.best->simulation.iteration_time);
  EXPECT_EQ(enumerate(base, fixed("schedule=1f1b")).best.value(),
            outcome.best->simulation.iteration_time);
}

// The layer-wise program, too: the time of the chain is the sum of its layers and conversions, and
// no other choice within the budget has a smaller sum.
TEST(MistakesOfPlanners, TheLayerwiseProgramMinimisesTheSumThatItReports) {
  const std::vector<LayerChoices> layers(3, {{1.0, 2.0, 3.5}, {9, 6, 2}});
  const std::vector<double> switches = {0, 0.3, 0.2, 0.1, 0, 0.4, 0.6, 0.05, 0};
  for (const std::int64_t budget : {6, 11, 14, 17, 20, 24, 27}) {
    double least = 1e9;
    for (int a = 0; a < 27; ++a) {
      const int s[3] = {a / 9, a / 3 % 3, a % 3};
      double time = 0;
      std::int64_t memory = 0;
      for (int i = 0; i < 3; ++i) {
        time += layers[0].time[static_cast<std::size_t>(s[i])];
        memory += layers[0].memory[static_cast<std::size_t>(s[i])];
        time += i > 0 ? switches[static_cast<std::size_t>(s[i - 1] * 3 + s[i])] : 0;
      }
      least = memory <= budget ? std::min(least, time) : least;
    }
    const std::optional<ChainPlan> plan = best_chain_plan(layers, switches, budget);
    ASSERT_TRUE(plan);
    EXPECT_DOUBLE_EQ(plan->time, least) << budget;
    EXPECT_LE(plan->memory, budget);
  }
}

// A batch that the ranks do not divide is not rounded down in silence: every plan of the space runs
// all of it, throughput counts what runs, and a plan that would drop samples is refused.
TEST(MistakesOfPlanners, NoThroughputForDroppedSamples) {
  const plan::Plan base = base_plan(Shape{.batch = 6});  // four GPUs
  std::int64_t plans = 0;
  enumerate(base, {}, [&](const plan::Plan& plan, const plan::Simulation& run, plan::Simulator&) {
    ++plans;
    EXPECT_EQ(plan.num_micro_batches() * plan.micro_batch * plan.dp, 6);
    EXPECT_NEAR(run.tokens_per_second_per_gpu * run.iteration_time.value() * 4,
                6.0 * static_cast<double>(plan.sequence), 1e-3);
  });
  EXPECT_GT(plans, 0);
  plan::Plan dropping = plan_with("dp=2,tp=2,pp=1,cp=1,micro_batch=1", base);
  dropping.blocks.front().layout.tp = 1;
  dropping.dp = 4;
  EXPECT_THROW(plan::check_plan(dropping, "test"), Error);
}

// Moving a layer into a middle stage makes every micro-batch wait for it.
TEST(MistakesOfPlanners, ASlowMiddleStageIsSeen) {
  plan::Plan base = base_plan({.spec = small_spec(8), .batch = 32});
  plan::Plan plan =
      plan_with("pp=4,tp=1,dp=1,cp=1,micro_batch=1,schedule=1f1b,recompute=none,stages=even", base);
  ASSERT_EQ(plan.stage_blocks, (std::vector<int>{3, 2, 2, 3}));
  const plan::Simulation even = plan::simulate(plan);
  plan.stage_blocks = {1, 7, 1, 1};
  const plan::Simulation middle = plan::simulate(plan);
  // Seven layers where the largest stage had two and the head, which is as much as 2.6 layers.
  EXPECT_GT(middle.breakdown.compute, even.breakdown.compute * 1.25);
  EXPECT_GE(middle.iteration_time, middle.breakdown.compute);
  EXPECT_GT(middle.iteration_time, even.iteration_time * 1.25);
}

// Halving tensor parallelism in the middle of the chain moves the activations: each conversion adds
// at least what the links take for its bytes, and no more than a few times that.
TEST(MistakesOfPlanners, ConversionsEnterTheTimeInTheRightMagnitude) {
  const plan::Plan base = base_plan({.spec = small_spec(8), .batch = 16});
  plan::Plan plan = plan_with(
      "tp=4,dp=1,pp=1,cp=1,micro_batch=4,recompute=none,sequence_parallel=false,zero=0", base);
  plan::BlockPlan wide = plan.blocks.front().layout;
  plan::BlockPlan narrow = wide;
  narrow.tp = 2;
  const auto time = [&](const std::vector<plan::BlockRun>& blocks) {
    plan.blocks = blocks;
    plan::check_plan(plan, "test");
    return time_of(plan);
  };
  // Half of the layers narrow in both; one has two conversions, the other six.
  const Seconds once = time({{3, wide}, {4, narrow}, {3, wide}});
  const Seconds thrice =
      time({{2, wide}, {1, narrow}, {1, wide}, {1, narrow}, {1, wide}, {2, narrow}, {2, wide}});
  EXPECT_GT(thrice, once);
  // A narrow rank keeps half of the samples of a wide one: it gathers the other half on the way
  // back, forward and again backward. 4 x 2048 x 1024 fp16 activations a micro-batch, 4
  // micro-batches.
  const double bytes = 0.5 * 4 * 2048 * 1024 * 2;
  const double link = base.cluster.node.scale_up.bandwidth_per_gpu.value();
  const double least = 4.0 * 4 * bytes / link / 2;  // four more conversions, half of them gather
  const double added = (thrice - once).value();
  EXPECT_GT(added, 0.5 * least);
  EXPECT_LT(added, 12 * least);
}

// The byte decides: a card that holds a plan exactly holds it, one with a byte less does not.
TEST(MistakesOfPlanners, NoMemoryIsLostToBinsOrAFlatReserve) {
  plan::Plan base = base_plan();
  const std::string fix = "dp=4,tp=1,pp=1,cp=1,micro_batch=1,zero=1,recompute=none,schedule=1f1b";
  const Outcome roomy = search(base, with(fix));
  ASSERT_TRUE(roomy.best);
  ByteCount needs;
  for (const plan::StageMemory& stage : roomy.best->simulation.memory) {
    needs = std::max(needs, stage.total());
  }
  for (const plan::MemoryPeak& peak : plan::replay_memory(roomy.best->plan)) {
    needs = std::max(needs, peak.device());
  }
  base.memory_reserve = base.cluster.gpu.memory - needs;
  EXPECT_TRUE(search(base, with(fix)).best);
  base.memory_reserve = base.memory_reserve + ByteCount(1);
  EXPECT_FALSE(search(base, with(fix)).best);
}

// ZeRO stages are never accepted and ignored: each shards what it says, with and without a
// pipeline.
TEST(MistakesOfPlanners, EveryZeroStageShardsWhatItSays) {
  for (const char* degrees : {"dp=4,pp=1", "dp=2,pp=2"}) {
    const std::string fix =
        std::string(degrees) + ",tp=1,cp=1,micro_batch=1,recompute=none,schedule=1f1b,zero=";
    std::vector<plan::Simulation> runs;
    for (const char* zero : {"0", "1", "2", "3"}) {
      const Outcome outcome = search(base_plan(), with(fix + zero));
      ASSERT_TRUE(outcome.best) << fix << zero;
      runs.push_back(outcome.best->simulation);
    }
    EXPECT_LT(runs[1].memory[0].optimizer, runs[0].memory[0].optimizer) << degrees;
    EXPECT_LT(runs[2].memory[0].gradients, runs[1].memory[0].gradients) << degrees;
    EXPECT_LT(runs[3].memory[0].parameters, runs[2].memory[0].parameters) << degrees;
    EXPECT_NE(runs[3].iteration_time, runs[2].iteration_time) << degrees;  // gathers twice
    EXPECT_NE(runs[1].iteration_time, runs[0].iteration_time) << degrees;
  }
}

Seconds time_on(const std::string& setting, const std::string& fix) {
  Shape shape;
  shape.cluster = "dgx-a100:2";
  shape.overrides = {"node.gpus=2"};
  if (!setting.empty()) {
    shape.overrides.push_back(setting);
  }
  return search(base_plan(shape), with(fix)).best.value().simulation.iteration_time;
}

// Every rate of the network is used by the plans that cross it, and by no others.
TEST(MistakesOfPlanners, EveryNetworkRateChangesTheAnswer) {
  const std::string across = "dp=4,tp=1,pp=1,cp=1,micro_batch=1,zero=0,recompute=none";
  const std::string inside =
      "dp=1,tp=2,pp=2,cp=1,micro_batch=1,recompute=none,schedule=1f1b,"
      "sequence_parallel=false";
  const Seconds data = time_on("", across);
  const Seconds tensor = time_on("", inside);
  EXPECT_GT(time_on("node.scale_out.nic_bandwidth=1 GB/s", across), data);
  EXPECT_GT(time_on("node.scale_out.latency=3 ms", across), data);
  EXPECT_GT(time_on("node.scale_up.bandwidth_per_gpu=10 GB/s", inside), tensor);
  EXPECT_GT(time_on("node.scale_up.latency=300 us", inside), tensor);
  // The pipeline's transfers alone cross the network here.
  EXPECT_GT(time_on("node.scale_out.nic_bandwidth=0.1 GB/s", inside), tensor);
  const std::string alone = "dp=1,tp=1,pp=1,cp=1,micro_batch=1,recompute=none";
  Shape one;
  one.overrides = {"node.gpus=1"};
  const Seconds single = search(base_plan(one), with(alone)).best.value().simulation.iteration_time;
  one.overrides.push_back("node.scale_out.nic_bandwidth=1 GB/s");
  EXPECT_EQ(search(base_plan(one), with(alone)).best.value().simulation.iteration_time, single);
}

// Threads divide the work and do not change the answer (tests/bench measures what they gain).
TEST(MistakesOfPlanners, ThreadsDoNotChangeTheAnswer) {
  const Outcome one = search(base_plan(), with("", 1));
  const Outcome two = search(base_plan(), with("", 2));
  ASSERT_TRUE(one.best && two.best);
  EXPECT_EQ(one.best->simulation.iteration_time, two.best->simulation.iteration_time);
  EXPECT_EQ(one.simulated, two.simulated);
  EXPECT_EQ(plan::to_json(one.best->plan).dump(), plan::to_json(two.best->plan).dump());
}

}  // namespace
}  // namespace orrery::search
