// SPDX-License-Identifier: Apache-2.0
// The replay of memory of schedules that cut backwards: B frees what only it reads, and W the rest.
#include <gtest/gtest.h>

#include <algorithm>

#include "plan/block/memory.hpp"
#include "plan/replay/memory_replay.hpp"
#include "plan/simulation/simulate.hpp"
#include "plan/stage/stage.hpp"
#include "tests/unit/plan/pipeline_fixture.hpp"

namespace orrery::plan {
namespace {

Plan split_pipeline(const char* schedule, int chunks, DType precision) {
  Plan plan =
      in_pipeline(small_plan(small_spec(), precision == DType::Fp8 ? "hgx-h100:2" : "dgx-a100:2"),
                  schedule, {.dp = 4, .tp = 1, .chunks = chunks});
  plan.precision = precision;
  return plan;
}

struct Peaks {
  double counted;   // by the memory model
  double replayed;  // by the caching allocator
  double whole;     // as counted, if everything were kept from the forward to W
};

// Of the second device, which holds neither embedding nor head.
Peaks second_device(const char* schedule, int chunks, bool fused_attention = true,
                    DType precision = DType::Bf16) {
  Plan plan = split_pipeline(schedule, chunks, precision);
  plan.execution.fused_attention = fused_attention;
  Simulator simulator(plan);
  const StageMemory memory = simulator.memory(plan)[1];
  Peaks peaks{static_cast<double>(memory.allocated().value()),
              static_cast<double>(replay_memory(plan)[1].allocated.value()), 0};
  int live = 0;
  int most = 0;
  for (const sim::Pass& pass : simulator.order(plan).passes[1]) {
    live += pass.kind == sim::PassKind::Forward                                              ? 1
            : pass.kind == sim::PassKind::InputGrad || pass.kind == sim::PassKind::Optimizer ? 0
                                                                                             : -1;
    most = std::max(most, live);
  }
  BlockCosts costs(plan);
  const StageCost stage = add_up_stage(stage_contents(plan)[1], plan, costs);
  peaks.whole = peaks.counted - static_cast<double>(memory.activations.value()) +
                static_cast<double>(stage.saved.value()) * most;
  return peaks;
}

class CutBackwards : public testing::TestWithParam<std::pair<const char*, int>> {};

// Both models keep the inputs and output gradients of the products alone from B to W, so that they
// differ by what they do where no backward is cut: temporaries of a pass and the workspace of
// the products.
TEST_P(CutBackwards, KeepWhatWeightGradientsRead) {
  for (const DType precision : {DType::Bf16, DType::Fp8}) {
    const Peaks plain = second_device("1f1b", 1, true, precision);
    const Peaks cut = second_device(GetParam().first, GetParam().second, true, precision);
    const double temporaries = plain.replayed - plain.counted;
    EXPECT_GT(temporaries, 0);
    EXPECT_NEAR(cut.replayed - cut.counted, temporaries, 0.03 * cut.counted);
    EXPECT_LE(cut.counted, cut.whole);
  }
}

// Softmax scores are read by B alone.
TEST(LateWeightGradients, LeaveRoomAfterB) {
  const Peaks late = second_device("zb-h2", 1, false);
  EXPECT_LT(late.replayed, 0.9 * late.whole);
}

// With ZeRO-2 W makes the gradients of a micro-batch and a reduction takes them: those of
// micro-batches that wait for W do not exist.
TEST(LateWeightGradients, AreMadeByW) {
  Plan plan = split_pipeline("zb-h2", 1, DType::Bf16);
  plan.blocks.front().layout.zero_stage = 2;
  const StageMemory counted = Simulator(plan).memory(plan)[1];
  const auto replayed = static_cast<double>(replay_memory(plan)[1].allocated.value());
  EXPECT_NEAR(replayed, static_cast<double>(counted.allocated().value()),
              0.08 * static_cast<double>(counted.allocated().value()));
}

// The weight gradient of a product whose result was scattered reads the whole gradient of it: B
// gathers, and what it gathered stays to W.
TEST(LateWeightGradients, ReadWhatBGathered) {
  Plan plan = split_pipeline("zb-h1", 1, DType::Bf16);
  BlockPlan& layout = plan.blocks.front().layout;
  layout.tp = 2;
  for (const bool scattered : {false, true}) {
    layout.sequence_parallel = scattered;
    BlockCosts costs(plan);
    const BlockMemory memory = block_memory(
        costs.block_context(plan.network.chain[1], layout, plan.micro_batch), {}, false);
    const std::int64_t whole = 2 * plan.micro_batch * plan.sequence * plan.network.spec.hidden;
    const std::vector<std::int32_t>& read = memory.for_weight_grads;
    const auto gathered = std::count_if(
        memory.backward.begin(), memory.backward.end(), [&](const MemoryEvent& event) {
          return event.bytes == whole &&
                 std::find(read.begin(), read.end(), event.buffer) != read.end();
        });
    EXPECT_EQ(gathered, scattered ? 2 : 0) << "of attention and of the feed-forward network";
  }
}

// B alone reads the softmax of the loss: to W stay the hidden state and gradients of logits.
TEST(LateWeightGradients, OfTheOutputLayerReadNoSoftmax) {
  const Plan plan = split_pipeline("zb-h2", 1, DType::Bf16);
  BlockCosts costs(plan);
  SplitBackwards splits;
  const std::vector<StageContent> contents = stage_contents(plan);
  const std::int64_t tokens = plan.micro_batch * plan.sequence;
  EXPECT_EQ(splits.kept(contents.back(), plan, costs).ends.value(), 2 * tokens * (1024 + 51200));
  EXPECT_EQ(splits.kept(contents.front(), plan, costs).ends.value(), 0);
  const StageMemory counted = Simulator(plan).memory(plan).back();
  const auto replayed = static_cast<double>(replay_memory(plan).back().allocated.value());
  EXPECT_LT(replayed, static_cast<double>(counted.allocated().value()));
}

INSTANTIATE_TEST_SUITE_P(Schedules, CutBackwards,
                         testing::Values(std::pair{"zb-h1", 1}, std::pair{"zb-h2", 1},
                                         std::pair{"zb-v", 2}, std::pair{"v-half", 2}),
                         [](const auto& row) {
                           std::string name = row.param.first;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return "s" + name;
                         });

}  // namespace
}  // namespace orrery::plan
