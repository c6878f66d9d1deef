// SPDX-License-Identifier: Apache-2.0
// The output of an encoder beside the residual stream of a decoder (plan/block/carried.hpp): what
// messages, conversions and stages have of it.
#include "plan/block/carried.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "plan/block/relayout.hpp"
#include "plan/replay/memory_replay.hpp"
#include "plan/simulation/layout_report.hpp"
#include "plan/simulation/simulate.hpp"
#include "plan/stage/split_backward.hpp"
#include "plan/stage/stage.hpp"
#include "sim/pipeline/pipeline_path.hpp"
#include "tests/unit/plan/pipeline_fixture.hpp"

namespace orrery::plan {
namespace {

using testing::ElementsAre;

constexpr std::int64_t kEncoderBytes = 2048 * 1024 * 2;  // of a sample
constexpr std::int64_t kDecoderBytes = 512 * 1024 * 2;

// Embedding, 4 blocks of the encoder, 4 of the decoder, head.
models::NetworkSpec encoder_decoder() {
  models::NetworkSpec spec = small_spec();
  spec.family = models::Family::T5;
  spec.layers = spec.encoder_layers = 4;
  spec.decoder_sequence = 512;
  return spec;
}

Plan cut_behind(const std::vector<int>& stages, const BlockPlan& layout = {},
                const std::string& schedule = "1f1b") {
  const int pp = static_cast<int>(stages.size());
  Plan plan = in_pipeline(small_plan(encoder_decoder()), schedule,
                          {.pp = pp, .dp = 16 / pp / layout.tp, .tp = layout.tp});
  plan.stage_blocks = stages;
  plan.blocks.front().layout = layout;
  check_plan(plan, "test");
  return plan;
}

BlockPlan recomputing(Recompute recompute, OperatorSet set = {}) {
  BlockPlan layout;
  layout.recompute = recompute;
  layout.recomputed = set;
  return layout;
}

std::vector<StageCost> stages_handing_on(const Plan& plan) {
  BlockCosts costs(plan);
  std::vector<StageCost> stages;
  for (const StageContent& content : stage_contents(plan)) {
    stages.push_back(add_up_stage(content, plan, costs));
  }
  hand_on(stages);
  return stages;
}

// Megatron-LM core/pipeline_parallel/schedules.py get_tensor_shapes: behind the split a message is
// both the decoder's tensor and the encoder's; the head reads the former alone.
TEST(Carried, IsInTheMessagesBetweenStagesOfTheDecoder) {
  const auto message = [](int blocks) {
    return stages_handing_on(cut_behind({blocks, 10 - blocks})).front().boundary.value();
  };
  EXPECT_EQ(message(4), kEncoderBytes);
  EXPECT_EQ(message(5), kEncoderBytes);
  EXPECT_EQ(message(6), kDecoderBytes + kEncoderBytes);
  EXPECT_EQ(message(8), kDecoderBytes + kEncoderBytes);
  EXPECT_EQ(message(9), kDecoderBytes);
  const auto time = [](int blocks) {
    Plan plan = cut_behind({blocks, 10 - blocks});
    plan.batch = plan.dp;  // one micro-batch: all messages are on the critical path
    const Simulation result = simulate(plan, {.record_spans = true});
    return sim::pipeline_path(result.order, result.pipeline).transfers;
  };
  EXPECT_GT(time(6), time(5));
  EXPECT_LT(time(9), time(5));
}

// A stage that takes it keeps it once, for however many blocks, also where these run again; the one
// whose block makes it has it among what that saves, or keeps it for the blocks behind.
TEST(Carried, IsKeptOnceByAStage) {
  const Plan plan = cut_behind({10});
  BlockCosts costs(plan);
  const std::vector<int>& chain = plan.network.chain;
  const auto beside_blocks = [&](const BlockPlan& layout, int first, int count) {
    StageContent content;
    ByteCount saved;
    for (int position = first; position < first + count; ++position) {
      const int block = chain[static_cast<std::size_t>(position)];
      content.push_back({block, layout, 1});
      saved += costs.of(block, layout, 1).saved;
    }
    return (add_up_stage(content, plan, costs).saved - saved).value();
  };
  const BlockPlan products = recomputing(Recompute::Operators, parse_operator_set("qkv", "test"));
  for (const BlockPlan& layout :
       {recomputing(Recompute::None), recomputing(Recompute::Selective),
        recomputing(Recompute::Products), recomputing(Recompute::Full), products}) {
    EXPECT_EQ(beside_blocks(layout, 6, 1), kEncoderBytes);
    EXPECT_EQ(beside_blocks(layout, 6, 3), kEncoderBytes);
    EXPECT_EQ(beside_blocks(layout, 1, 4), 0);
  }
  EXPECT_EQ(beside_blocks(recomputing(Recompute::None), 4, 4), 0);
  EXPECT_EQ(beside_blocks(recomputing(Recompute::Full), 4, 4), kEncoderBytes);
  EXPECT_EQ(beside_blocks(recomputing(Recompute::Full), 4, 2), 0);
}

// Of every micro-batch in flight: three on the second of four stages, two on the third.
TEST(Carried, IsInTheMemoryOfEveryMicroBatch) {
  const std::vector<StageMemory> memory =
      Simulator(cut_behind({6, 1, 1, 2}))
          .memory(cut_behind({6, 1, 1, 2}, recomputing(Recompute::Full)));
  EXPECT_EQ(memory[1].activations.value(), 3 * (kDecoderBytes + kEncoderBytes));
  EXPECT_EQ(memory[2].activations.value(), 2 * (kDecoderBytes + kEncoderBytes));
  EXPECT_EQ(memory[3].activations.value(), kDecoderBytes + kEncoderBytes);
}

// It is converted as the stream is: gathered where the next block cuts nothing, its gradient where
// the next block cuts tokens.
TEST(Carried, IsConvertedWithTheStream) {
  BlockPlan whole;
  BlockPlan pair;
  pair.tp = 2;
  BlockPlan tokens = pair;
  tokens.sequence_parallel = true;
  const auto conversions = [](const BlockPlan& from, const BlockPlan& to, int position) {
    Plan plan = cut_behind({10}, from);
    plan.blocks = {{position, from}, {10 - position, to}};
    check_plan(plan, "test");
    std::vector<std::pair<sim::PassKind, double>> found;
    for (const BlockReport& block : report_layouts(plan)) {
      for (const ReportedCollective& one : block.conversion) {
        found.emplace_back(one.pass, one.bytes.value());
      }
    }
    return found;
  };
  const auto forward = sim::PassKind::Forward;
  const auto backward = sim::PassKind::InputGrad;
  EXPECT_THAT(conversions(pair, tokens, 7), ElementsAre(std::pair(backward, 1.0 * kDecoderBytes),
                                                        std::pair(backward, 1.0 * kEncoderBytes)));
  EXPECT_THAT(conversions(tokens, pair, 7), ElementsAre(std::pair(forward, 1.0 * kDecoderBytes),
                                                        std::pair(forward, 1.0 * kEncoderBytes)));
  EXPECT_THAT(conversions(tokens, pair, 4), ElementsAre(std::pair(forward, 1.0 * kEncoderBytes)));
  EXPECT_THAT(conversions(tokens, pair, 9), ElementsAre(std::pair(forward, 1.0 * kDecoderBytes)));
  const Plan plan = cut_behind({10}, pair);
  BlockCosts costs(plan);
  const int block = plan.network.chain[7];
  const BlockCost& before = costs.of(block, tokens, 1);
  const BlockCost& after = costs.of(block, pair, 1);
  const Relayout stream = relayout(plan, tokens, before.boundary, pair, after.boundary, costs);
  const Relayout carried =
      relayout(plan, tokens, ByteCount(kEncoderBytes / 2), pair, ByteCount(kEncoderBytes), costs);
  ASSERT_GT(carried.forward, stream.forward);
  EXPECT_EQ(relayout(plan, costs, {block, tokens, block, pair}).forward,
            stream.forward + carried.forward);
}

// W of a cut backward reads it for the keys and values of every block.
TEST(Carried, WaitsOnceForWeightGradients) {
  const Plan plan = cut_behind({10});
  BlockCosts costs(plan);
  SplitBackwards splits;
  const auto kept = [&](int count) {
    return splits.kept({{plan.network.chain[7], {}, count}}, plan, costs).layers.value();
  };
  EXPECT_EQ(kept(2) - kept(1), kept(1) - kEncoderBytes);
}

// What the categories count the allocator holds: a stage of the decoder with one more micro-batch
// in flight has the stream and it once more.
TEST(Carried, IsHeldInTheReplay) {
  const auto allocated = [](std::int64_t batch) {
    Plan plan = cut_behind({6, 1, 1, 2}, recomputing(Recompute::Full), "gpipe");
    plan.batch = batch * plan.dp;
    return replay_memory(plan)[1].allocated.value();
  };
  EXPECT_EQ(allocated(4) - allocated(3), kDecoderBytes + kEncoderBytes);
}

}  // namespace
}  // namespace orrery::plan
