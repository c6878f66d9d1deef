// SPDX-License-Identifier: Apache-2.0
// HelixPipe in plans: passes, transfers, memory and what it asks for.
#include "plan/stage/spread_attention.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "base/error.hpp"
#include "plan/block/memory_facts.hpp"
#include "plan/replay/memory_replay.hpp"
#include "plan/simulation/simulate.hpp"
#include "plan/stage/transfers.hpp"
#include "plan/stages.hpp"
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

Plan shipping(std::int64_t sequence) {
  Plan plan = spread(sequence);
  plan.execution.ships_weights = true;
  check_plan(plan, "test");
  return plan;
}

sim::PipelineCosts passes_of(const Plan& plan) {
  BlockCosts costs(plan);
  Simulator simulator(plan);
  std::vector<StageCost> stages;
  for (const StageContent& content : stage_contents(plan)) {
    stages.push_back(add_up_stage(content, plan, costs));
  }
  return spread_passes(plan, simulator.order(plan), stages, costs);
}

// Two tensor ranks with half of 3 x 1024 outputs each: 3 MiB of weights (and biases) in 16 bits,
// while a token's stream and normed input are 2 KiB each, its queries, keys and values 3 KiB.
TEST(SpreadAttention, ShippedWeightsReplaceQueriesKeysAndValues) {
  constexpr std::int64_t kWeights = std::int64_t{1024 + 1} * 1536 * 2;
  for (const std::int64_t sequence : {2048, 4096}) {
    const Plan plan = shipping(sequence);
    BlockCosts costs(plan);
    TransferTimes times(costs);
    const sim::PipelineCosts with = passes_of(plan);
    const sim::PipelineCosts without = passes_of(spread(sequence));
    const auto time = [&](std::int64_t bytes) { return times.of(plan, ByteCount(bytes), 1, 0, 1); };
    EXPECT_EQ(without.send_forward[0], time(sequence * 2048 + sequence * 3072));
    EXPECT_EQ(with.send_forward[0], time(sequence * 2 * 2048 + kWeights));
    EXPECT_EQ(with.send_backward[0], with.send_forward[0]);
    EXPECT_EQ(with.send_forward[1], without.send_forward[1]);  // the result and the stream
    // 1 KiB a token less against 3 MiB of weights.
    EXPECT_EQ(with.send_forward[0]<without.send_forward[0], sequence> 3072);
    // The product is on attention's side, so that parts are shorter; nothing is lost.
    EXPECT_EQ(sum(with.forward), sum(without.forward));
    EXPECT_EQ(sum(with.backward), sum(without.backward));
    EXPECT_GT(with.forward[1], without.forward[1]);
    EXPECT_GT(with.backward[1], without.backward[1]);
    EXPECT_LT(with.forward[2], without.forward[2]);
  }
}

// 12 of 16 micro-batches have their attention elsewhere, for two layers; and one gradient.
TEST(SpreadAttention, ShippedWeightsAreHeldUntilTheBackwards) {
  const ByteCount held(std::int64_t{1024 + 1} * 1536 * 2 * (12 * 2 + 1));
  const Plan plan = shipping(2048);
  const Plan usual = spread(2048);
  const std::vector<StageMemory> with = Simulator(plan).memory(plan);
  const std::vector<StageMemory> without = Simulator(usual).memory(usual);
  const std::vector<MemoryPeak> replayed = replay_memory(plan, {});
  const std::vector<MemoryPeak> replayed_usual = replay_memory(usual, {});
  for (std::size_t d = 0; d < 4; ++d) {
    EXPECT_EQ(with[d].activations, without[d].activations + held);
    EXPECT_EQ(replayed[d].allocated, replayed_usual[d].allocated + held);
  }
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
