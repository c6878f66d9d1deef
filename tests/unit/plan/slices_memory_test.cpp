// SPDX-License-Identifier: Apache-2.0
// What slices of sequences hold when their allocations are replayed, and what leaves for the host.
#include <gtest/gtest.h>

#include "plan/block/cost.hpp"
#include "plan/replay/memory_replay.hpp"
#include "plan/simulation/simulate.hpp"
#include "plan/slices.hpp"
#include "plan/stage/offload_time.hpp"
#include "plan/stage/sliced.hpp"
#include "tests/unit/plan/balanced_replay.hpp"
#include "tests/unit/plan/slices_fixture.hpp"

namespace orrery::plan {
namespace {

TEST(Slices, TheReplayOfALayerHoldsWhatTheFormulaSays) {
  for (const char* network : {"llama3-8b", "gpt3-1.3b", "mixtral-8x7b", "deepseek-v2-lite"}) {
    Plan plan = sliced("seq1f1b", 4, 1, models::load_network(network).spec);
    BlockPlan& layout = plan.blocks.front().layout;
    const Slice slice = slices_of(plan)[1];
    for (const Recompute recompute : {Recompute::None, Recompute::Products}) {
      layout.recompute = recompute;
      expect_balanced(plan, slice);
    }
    layout.recompute = Recompute::Operators;
    OperatorSet all;
    for (int index = 0; index < kNumOperatorGroups; ++index) {
      const auto group = static_cast<OperatorGroup>(index);
      layout.recomputed = groups({group});
      expect_balanced(plan, slice);
      all.add(group);
    }
    layout.recomputed = all;
    expect_balanced(plan, slice);
  }
}

TEST(Slices, AreReplayedOneByOne) {
  const MemoryFacts facts;
  Plan cut = long_sequence("seq1f1b", 16);
  cut.blocks.front().layout.recomputed = groups({OperatorGroup::Qkv, OperatorGroup::MlpUp});
  for (const Recompute recompute :
       {Recompute::None, Recompute::Full, Recompute::Products, Recompute::Operators}) {
    cut.blocks.front().layout.recompute = recompute;
    offload_of(cut).activations = 0;
    const std::vector<MemoryPeak> replayed = replay_memory(cut, facts);
    const Simulation counted = simulate(cut);
    for (std::size_t stage = 0; stage < replayed.size(); ++stage) {
      const auto bytes = static_cast<double>(counted.memory[stage].allocated().value());
      EXPECT_NEAR(static_cast<double>(replayed[stage].allocated.value()) / bytes, 1, 0.06);
    }
    Plan whole = cut;
    whole.schedule = "1f1b";
    whole.slices = 1;
    EXPECT_LT(replayed[0].allocated * 2, replay_memory(whole, facts)[0].allocated);
    offload_of(cut).activations = 1;
    const Simulation without = simulate(cut);
    const std::vector<MemoryPeak> away = replay_memory(cut, facts);
    for (std::size_t stage = 0; stage < away.size(); ++stage) {
      const auto bytes = static_cast<double>(without.memory[stage].allocated().value());
      EXPECT_NEAR(static_cast<double>(away[stage].allocated.value()) / bytes, 1, 0.08);
    }
  }
}

// A cut backward holds the slice until its second part, and an update holds none.
TEST(Slices, AreHeldUntilTheWeightGradient) {
  const Plan plan = sliced("seq1f1b", 4);
  Simulator simulator(plan);
  BlockCosts costs(plan);
  const SliceCosts slices =
      slice_costs(plan, stage_contents(plan), [&](const StageContent& content, const Slice& slice) {
        return add_up_stage(content, plan, costs, slice);
      });
  const sim::PipelineOrder whole = simulator.order(plan);
  sim::PipelineOrder cut = whole;
  for (std::vector<sim::Pass>& list : cut.passes) {
    std::vector<sim::Pass> parts;
    for (sim::Pass pass : list) {
      const bool backward = pass.kind == sim::PassKind::Backward;
      pass.kind = backward ? sim::PassKind::InputGrad : pass.kind;
      parts.push_back(pass);
      if (backward) {
        parts.emplace_back(sim::PassKind::WeightGrad, pass.virtual_stage, pass.micro_batch);
      }
    }
    parts.emplace_back(sim::PassKind::Optimizer, list.front().virtual_stage, 0);
    list = std::move(parts);
  }
  const std::vector<SlicePeak> peaks = slice_peaks(cut, slices);
  const std::vector<SlicePeak> expected = slice_peaks(whole, slices);
  for (std::size_t device = 0; device < peaks.size(); ++device) {
    EXPECT_EQ(peaks[device].total(), expected[device].total()) << device;
    EXPECT_EQ(peaks[device].gradients, expected[device].gradients) << device;
  }
}

// Keys and values wait on the device for later slices, everything else of a layer leaves.
TEST(Slices, LeaveForTheHostWithoutKeysAndValues) {
  constexpr int kSlices = 8;
  Plan plan = sliced("seq1f1b", kSlices);
  BlockCosts costs(plan);
  const BlockCost& layer =
      costs.of(plan.network.chain[1], plan.blocks.front().layout, 1, {0, 256, false});
  const StageMemory here = simulate(plan).memory[1];
  offload_of(plan).activations = 1;
  const StageMemory away = simulate(plan).memory[1];
  const std::int64_t live = (kSlices + plan.pp - 2) * 2;  // of two layers
  EXPECT_EQ(away.activations, layer.context_gradients * live);
  EXPECT_EQ(away.host, (layer.saved - layer.context_gradients) * live);
  EXPECT_EQ(away.activations + away.host, here.activations + here.host);
  // By operator, too: what attention reads is not the projections' to give away.
  offload_of(plan).activations_of.add(OperatorGroup::Qkv);
  offload_of(plan).activations_of.add(OperatorGroup::Rotary);
  const StageMemory queries = simulate(plan).memory[1];
  EXPECT_EQ(queries.host, ByteCount(256 * 8 * 64 * 2) * live);
}

// What a trace counts for a pass is a slice's share: as many as are live are what the device keeps.
TEST(Slices, KeepTheirShareOfAMicroBatch) {
  for (const char* schedule : {"seq1f1b", "slimpipe", "terapipe"}) {
    const Simulation run = simulate(sliced(schedule, 4), {.record_spans = true});
    for (std::size_t device = 0; device < run.memory.size(); ++device) {
      const double counted = static_cast<double>(run.passes.activation[device].value()) *
                             static_cast<double>(run.pipeline.devices[device].peak_chunks);
      const ByteCount kept = run.memory[device].activations + run.memory[device].ends;
      EXPECT_NEAR(counted / static_cast<double>(kept.value()), 1, 0.1) << schedule;
    }
  }
}

TEST(Slices, WaitForTheirCopies) {
  Plan plan = long_sequence("slimpipe", 4);
  const auto forward = [](const Plan& one) {
    return simulate(one, {.record_spans = true}).passes.unit_forward;
  };
  const std::vector<SimTime> alone = forward(plan);
  offload_of(plan).activations = 0.5;
  plan.cluster.node.host_link_per_gpu = BytesPerSecond(1e13);
  plan.cluster.node.host_memory_bandwidth = BytesPerSecond(1e15);
  plan.profile.host_copy.latency = Seconds();
  EXPECT_EQ(forward(plan), alone);  // all hidden: attention is exchanged as ever
  plan.cluster.node.host_link_per_gpu = BytesPerSecond(1e9);
  const std::vector<SimTime> late = forward(plan);
  const Slice slice = slices_of(plan).front();
  BlockCosts costs(plan);
  const StageCost stage = add_up_stage(stage_contents(plan)[1], plan, costs, slice);
  const double link = tier_graph(plan.cluster, plan.profile).channels.front().bandwidth.value();
  for (std::size_t unit = 4 * 4; unit < 4 * 4 + 4; ++unit) {  // of the second stage
    EXPECT_NEAR(to_seconds(late[unit]).value(),
                static_cast<double>(stage.saved_host.value()) / link, 1e-6);
  }
}

// Of a slice other products run again than of a whole micro-batch, so that its buffers have other
// numbers: the gradients that ZeRO reduces are those of the slice.
TEST(Slices, ReduceTheirOwnGradients) {
  for (const int zero : {2, 3}) {
    for (const OperatorGroup other : {OperatorGroup::MlpUp, OperatorGroup::MlpDown}) {
      Plan plan = sliced("seq1f1b", 2, 1, models::load_network("llama3-8b").spec);
      BlockPlan& layout = plan.blocks.front().layout;
      layout.zero_stage = zero;
      layout.recompute = Recompute::Operators;
      layout.recomputed = groups({OperatorGroup::Qkv, other});
      const std::vector<MemoryPeak> replayed = replay_memory(plan);
      const Simulation counted = simulate(plan);
      for (std::size_t stage = 0; stage < replayed.size(); ++stage) {
        const auto bytes = static_cast<double>(counted.memory[stage].allocated().value());
        EXPECT_NEAR(static_cast<double>(replayed[stage].allocated.value()) / bytes, 1, 0.1);
      }
    }
  }
}

}  // namespace
}  // namespace orrery::plan
