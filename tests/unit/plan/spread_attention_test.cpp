// SPDX-License-Identifier: Apache-2.0
// HelixPipe in plans: passes, transfers, memory and what it asks for.
#include "plan/spread_attention.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "base/error.hpp"
#include "plan/memory_facts.hpp"
#include "plan/replay/memory_replay.hpp"
#include "plan/simulate.hpp"
#include "tests/unit/plan/pipeline_fixture.hpp"

namespace orrery::plan {
namespace {

// Four devices with two layers each, 16 micro-batches.
Plan spread(std::int64_t sequence = 2048, const std::string& schedule = "helixpipe") {
  models::NetworkSpec spec = small_spec();
  spec.sequence = sequence;
  Plan plan = in_pipeline(small_plan(spec), schedule, {.chunks = schedule == "helixpipe" ? 2 : 1});
  plan.sequence = sequence;
  check_plan(plan, "test");
  return plan;
}

SimTime sum(const std::vector<SimTime>& times) {
  return std::accumulate(times.begin(), times.end(), SimTime{});
}

// The parts of all layers and both ends take what the blocks take.
TEST(SpreadAttention, PassesAddUpToTheBlocks) {
  const Plan plan = spread();
  BlockCosts costs(plan);
  Simulator simulator(plan);
  const sim::PipelineOrder order = simulator.order(plan);
  std::vector<StageCost> stages;
  SimTime forward;
  SimTime backward;
  for (const StageContent& content : stage_contents(plan)) {
    stages.push_back(add_up_stage(content, plan, costs));
    forward += stages.back().forward;
    backward += stages.back().backward;
  }
  const sim::PipelineCosts passes = spread_passes(plan, order, stages, costs);
  ASSERT_EQ(passes.forward.size(), 4U * 17);
  EXPECT_EQ(sum(passes.forward), forward * 4);
  EXPECT_EQ(sum(passes.backward), backward * 4);
  EXPECT_GT(passes.forward[1], SimTime{});  // attention
  EXPECT_EQ(passes.forward[1], passes.forward[3]);
  // Offset 3 of layer 0 has its attention on the layer's own device.
  EXPECT_GT(passes.send_forward[0], SimTime{});
  EXPECT_EQ(passes.send_forward[3 * 17], SimTime{});
  // Queries, keys, values and the stream there; the result and the stream back.
  EXPECT_GT(passes.send_forward[0], passes.send_forward[1]);
}

// Later layers have their parameters while the first one waits.
TEST(SpreadAttention, FirstForwardsDoNotWaitForTheSameTimeTwice) {
  const Plan plan = spread();
  BlockCosts costs(plan);
  Simulator simulator(plan);
  const SimTime late{1'000'000'000'000};
  std::vector<StageCost> stages;
  for (const StageContent& content : stage_contents(plan)) {
    stages.push_back(add_up_stage(content, plan, costs));
    stages.back().gathered_forward = stages.back().forward + late;
  }
  const sim::PipelineCosts passes = spread_passes(plan, simulator.order(plan), stages, costs);
  EXPECT_EQ(passes.first_forward_extra.front(), late);
  EXPECT_EQ(sum(passes.first_forward_extra), late);
}

TEST(SpreadAttention, HoldsAllMicroBatchesOnEqualDevices) {
  const Plan plan = spread();
  const Plan all = spread(2048, "gpipe");
  const std::vector<StageMemory> memory = Simulator(plan).memory(plan);
  const std::vector<StageMemory> stages = Simulator(all).memory(all);
  for (std::size_t d = 0; d < 4; ++d) {
    EXPECT_EQ(memory[d].activations, stages[d].activations) << d;
  }
  // Both ends are on the first device: the table, which is tied, once.
  EXPECT_EQ(memory[3].parameters, memory[1].parameters);
  const ByteCount norm = memory[0].parameters - stages[0].parameters;  // before the head
  EXPECT_GT(norm, ByteCount());
  EXPECT_LT(norm, ByteCount(10'000));
  EXPECT_EQ(memory[0].ends, stages[0].ends + stages[3].ends);
  const std::vector<MemoryPeak> replayed = replay_memory(plan, {});
  ASSERT_EQ(replayed.size(), 4U);
  EXPECT_NEAR(static_cast<double>(replayed[1].allocated.value()),
              static_cast<double>(memory[1].allocated().value()),
              0.1 * static_cast<double>(memory[1].allocated().value()));
}

// Idle time of 1f1b grows with attention, that of spread attention does not: the longer the
// sequence, the more it gains.
TEST(SpreadAttention, GainsWithTheLengthOfSequences) {
  const auto gain = [](std::int64_t sequence) {
    const Plan usual = spread(sequence, "1f1b");
    const Plan plan = spread(sequence);
    return simulate(usual).iteration_time / simulate(plan).iteration_time;
  };
  const double at_16k = gain(16384);
  EXPECT_GT(gain(65536), at_16k);
  EXPECT_GT(gain(65536), 1.0);
}

TEST(SpreadAttention, TakesLongerOverSlowLinks) {
  const Plan fast = spread();
  Plan slow = fast;
  slow.cluster.node.scale_out.latency = Seconds(0.01);  // tensor parallelism stays in a node
  EXPECT_GT(simulate(slow).iteration_time, simulate(fast).iteration_time);
}

TEST(SpreadAttention, SaysTheSmallestChange) {
  const auto problem = [](auto change) -> std::string {
    Plan plan = spread();
    change(plan);
    try {
      check_plan(plan, "test");
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(problem([](Plan& plan) {
                plan.chunks = 1;
                plan.stage_blocks = even_stages(plan.network, 4);
              }),
              testing::HasSubstr("set chunks to 2"));
  EXPECT_THAT(problem([](Plan& plan) { plan.blocks.front().layout.zero_stage = 2; }),
              testing::HasSubstr("set zero_stage to 1"));
  EXPECT_THAT(problem([](Plan& plan) { plan.blocks.front().layout.recompute = Recompute::Full; }),
              testing::HasSubstr("set recompute to"));
  EXPECT_THAT(problem([](Plan& plan) { plan.batch = 36; }), testing::HasSubstr("20"));
}

}  // namespace
}  // namespace orrery::plan
