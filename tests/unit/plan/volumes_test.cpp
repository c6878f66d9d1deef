// SPDX-License-Identifier: Apache-2.0
// The collectives that the conversion rules derive, against the published volumes of the strategies
// (Megatron-LM, Optimus, Tesseract, ZeRO), ring-optimal elements a device.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/unit/plan/volume_fixture.hpp"

namespace orrery::plan {
namespace {

BlockPlan tensor_parallel(int tp, bool sequence_parallel) {
  BlockPlan layout;
  layout.tp = tp;
  layout.sequence_parallel = sequence_parallel;
  return layout;
}

struct TensorParallelCase {
  int batch;
  int hidden;
  int ranks;
  double forward;  // million elements, by hand
  double total;
};

class TensorParallelVolume : public testing::TestWithParam<TensorParallelCase> {};

TEST_P(TensorParallelVolume, EqualsTheOneDimensionalRow) {
  const TensorParallelCase& c = GetParam();
  const Layer layer(gpt(c.hidden, 128), tensor_parallel(c.ranks, false), 1, c.batch, 512);
  const BlockSteps steps = layer.steps();
  EXPECT_NEAR(sent(steps.forward) / 1e6, c.forward, 5e-4);
  EXPECT_NEAR((sent(steps.forward) + sent(steps.backward)) / 1e6, c.total, 5e-4);
  EXPECT_EQ(count(steps.forward, CommKind::AllReduce), 2);
  EXPECT_EQ(count(steps.backward, CommKind::AllReduce), 2);
}

INSTANTIATE_TEST_SUITE_P(TableA2, TensorParallelVolume,
                         testing::Values(TensorParallelCase{8, 4096, 64, 66.060, 132.121},
                                         TensorParallelCase{24, 3072, 64, 148.636, 297.271},
                                         TensorParallelCase{192, 3072, 64, 1189.085, 2378.170},
                                         TensorParallelCase{8, 4096, 8, 58.720, 117.441}));

TEST(SequenceParallelVolume, IsTheTensorParallelOnePlusTheRegather) {
  const Layer layer(gpt(4096, 64), tensor_parallel(8, true), 1, 8, 512);
  const BlockSteps steps = layer.steps();
  EXPECT_EQ(count(steps.forward, CommKind::AllGather), 2);
  EXPECT_EQ(count(steps.forward, CommKind::ReduceScatter), 2);
  EXPECT_EQ(count(steps.forward, CommKind::AllReduce), 0);
  EXPECT_EQ(count(steps.backward, CommKind::ReduceScatter), 2);
  // Two gathers of the gradient and two of the saved inputs.
  EXPECT_EQ(count(steps.backward, CommKind::AllGather), 4);
  const double bsh = 8.0 * 512 * 4096;
  EXPECT_DOUBLE_EQ(sent(steps.forward), 4.0 * 7 / 8 * bsh);
  EXPECT_DOUBLE_EQ(sent(steps.backward), 6.0 * 7 / 8 * bsh);
}

TEST(RecomputeVolume, FullRepeatsTheForwardCollectives) {
  BlockPlan layout = tensor_parallel(8, true);
  layout.recompute = Recompute::Full;
  const BlockSteps steps = Layer(gpt(4096, 64), layout, 1, 8, 512).steps();
  EXPECT_DOUBLE_EQ(sent(steps.recompute), sent(steps.forward));
  layout.recompute = Recompute::Selective;
  EXPECT_DOUBLE_EQ(sent(Layer(gpt(4096, 64), layout, 1, 8, 512).steps().recompute), 0.0);
}

TEST(ContextParallelVolume, RingGathersKeysAndValuesAndReducesTheirGradients) {
  BlockPlan layout;
  layout.cp = 4;
  layout.context = ContextParallel::AllGather;
  const BlockSteps steps = Layer(gpt(1024, 16), layout, 1, 2, 4096).steps();
  const double one = 3.0 / 4 * 2 * 4096 * 1024;  // (c-1)/c of K (or V)
  EXPECT_EQ(count(steps.forward, CommKind::AllGather), 2);
  EXPECT_DOUBLE_EQ(sent(steps.forward), 2 * one);
  EXPECT_EQ(count(steps.backward, CommKind::AllGather), 2);
  EXPECT_EQ(count(steps.backward, CommKind::ReduceScatter), 2);
  EXPECT_DOUBLE_EQ(sent(steps.backward), 4 * one);
}

TEST(UlyssesVolume, FourAllToAllsEachWay) {
  BlockPlan layout;
  layout.cp = 4;
  layout.context = ContextParallel::Ulysses;
  const BlockSteps steps = Layer(gpt(1024, 16), layout, 1, 2, 4096).steps();
  EXPECT_EQ(count(steps.forward, CommKind::AllToAll), 4);
  EXPECT_EQ(count(steps.backward, CommKind::AllToAll), 4);
  // (c-1)/c (1/c) s b (2h + 2 g d_h) elements, the same again in backward (A3).
  const double expected = 3.0 / 4 / 4 * 4096 * 2 * (2 * 1024 + 2 * 1024);
  EXPECT_DOUBLE_EQ(sent(steps.forward), expected);
  EXPECT_DOUBLE_EQ(sent(steps.backward), expected);
}

// Heads of keys and values that are fewer than the ranks are sent to several of them: a rank
// receives a head of all tokens, and sends its gradient back.
TEST(UlyssesVolume, RepeatedHeadsAreSentToEachOfTheirRanks) {
  BlockPlan layout;
  layout.cp = 8;
  layout.context = ContextParallel::Ulysses;
  models::NetworkSpec spec = gpt(1024, 16).spec;
  spec.kv_heads = 2;
  const BlockSteps steps = Layer(models::build_network(spec, "test"), layout, 1, 2, 4096).steps();
  const double tokens = 2 * 4096;
  const double queries = 7.0 / 8 / 8 * tokens * 1024;  // and as much of the context
  const double keys = 7.0 / 8 * tokens * 64;           // of a head; and as much of the values
  EXPECT_DOUBLE_EQ(sent(steps.forward), 2 * (queries + keys));
  EXPECT_DOUBLE_EQ(sent(steps.backward), 2 * (queries + keys));
}

TEST(ExpertParallelVolume, DispatchAndCombineEachWay) {
  BlockPlan layout;
  layout.ep = 4;
  const BlockSteps steps = Layer(mixture(8, 2), layout, 4, 2, 512).steps();
  EXPECT_EQ(count(steps.forward, CommKind::AllToAll), 2);
  EXPECT_EQ(count(steps.backward, CommKind::AllToAll), 2);
  const double expected = 2.0 * 3 / 4 * 2 * 512 * 2 * 1024;  // (e-1)/e b s k h, twice
  EXPECT_DOUBLE_EQ(sent(steps.forward), expected);
  EXPECT_DOUBLE_EQ(sent(steps.backward), expected);
}

TEST(DataParallel, BlocksThemselvesDoNotCommunicate) {
  const BlockSteps steps = Layer(gpt(1024, 16), BlockPlan{}, 64, 2, 512).steps();
  EXPECT_DOUBLE_EQ(sent(steps.forward) + sent(steps.backward), 0.0);
}

// Model-state bytes per device for 7.5e9 parameters on 64 ranks (A4 d): DDP 120, ZeRO-1 31.4,
// ZeRO-2 16.6, ZeRO-3 1.9 GB, with 2-byte gradients and 12 bytes of optimizer state.
TEST(StateBytes, FollowTheZeroTable) {
  BlockCost block;
  StateGroup group;
  group.reduced = {false, false, false, true, true, true, true, true};
  group.elements = 7'500'000'000;
  block.states = {group};
  Execution execution;
  execution.fp32_gradients = false;
  const std::vector<double> expected = {120.0, 31.4, 16.6, 1.9};
  for (int stage = 0; stage <= 3; ++stage) {
    BlockPlan layout;
    layout.zero_stage = stage;
    const StateBytes bytes =
        state_bytes(block, layout, mesh_of(layout, 64), execution, DType::Fp16, false);
    const double total =
        static_cast<double>((bytes.parameters + bytes.gradients + bytes.optimizer).value());
    EXPECT_NEAR(total / 1e9, expected[static_cast<std::size_t>(stage)], 0.06) << stage;
  }
}

// A mesh names what a plan shards over: parameters of a block, whatever the degrees, add up.
TEST(StateGroups, ConserveParameters) {
  const models::Network network = mixture(8, 2);
  const models::Block& block = network.blocks[static_cast<std::size_t>(network.chain[1])];
  const std::int64_t total = models::num_parameters(block);
  for (const int tp : {1, 2, 4}) {
    for (const int ep : {1, 2, 8}) {
      BlockPlan layout;
      layout.tp = tp;
      layout.ep = ep;
      const Mesh mesh = mesh_of(layout, 8);
      std::int64_t sum = 0;
      for (const StateGroup& group : state_groups(block, rules_of(layout, true), mesh)) {
        const bool expert = !group.reduced_over(Axis::Expert);
        sum += group.elements * (expert ? ep : 1);
        if (expert) {
          EXPECT_EQ(group.elements * ep * tp, 8LL * 3 * 1024 * 2048);
        }
      }
      EXPECT_LE(sum, total);
      EXPECT_GE(sum * tp, total);
    }
  }
}

}  // namespace
}  // namespace orrery::plan
