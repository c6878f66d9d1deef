// SPDX-License-Identifier: Apache-2.0
// Slices of sequences in plans: what they cost, what they hold, what cannot be cut.
#include "plan/slices.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "base/error.hpp"
#include "plan/block/cost.hpp"
#include "plan/flat/flat.hpp"
#include "plan/simulation/simulate.hpp"
#include "plan/stage/sliced.hpp"
#include "plan/stages.hpp"
#include "tests/unit/plan/balanced_replay.hpp"
#include "tests/unit/plan/slices_fixture.hpp"

namespace orrery::plan {
namespace {

using testing::HasSubstr;

TEST(Slices, OneSliceIsTheWholeMicroBatch) {
  EXPECT_EQ(simulate(sliced("seq1f1b", 1)).iteration_time,
            simulate(sliced("1f1b", 1)).iteration_time);
  EXPECT_EQ(simulate(sliced("terapipe", 1)).iteration_time,
            simulate(sliced("gpipe", 1)).iteration_time);
}

TEST(Slices, FlopsAndActivationsAddUpToTheMicroBatch) {
  const Plan plan = sliced("seq1f1b", 8);
  BlockCosts costs(plan);
  for (const Recompute recompute : {Recompute::None, Recompute::Full}) {
    BlockPlan layout = plan.blocks.front().layout;
    layout.recompute = recompute;
    for (const int block :
         {plan.network.chain[0], plan.network.chain[1], plan.network.chain.back()}) {
      const BlockCost& whole = costs.of(block, layout, 1);
      double forward = 0;
      double backward = 0;
      ByteCount saved;
      ByteCount keys;
      for (const Slice& slice : slices_of(plan)) {
        const BlockCost& part = costs.of(block, layout, 1, slice);
        forward += part.forward.flops.value();
        backward += part.backward.flops.value();
        saved += part.saved;
        keys += part.context_gradients;
      }
      EXPECT_NEAR(forward, whole.forward.flops.value(), 1e-12 * forward);
      EXPECT_NEAR(backward, whole.backward.flops.value(), 1e-12 * backward);
      const bool replayed = recompute == Recompute::Full && keys.value() > 0;
      EXPECT_EQ(saved, replayed ? whole.saved + keys : whole.saved);
    }
  }
}

// Groups of operators are recomputed but for the keys and values among what they make.
TEST(Slices, RecomputeOperatorsButForKeysAndValues) {
  const Plan plan = long_sequence("seq1f1b", 8);
  BlockCosts costs(plan);
  const Slice slice = slices_of(plan)[3];
  const auto layer = [&](Recompute recompute, OperatorSet set) {
    BlockPlan layout = plan.blocks.front().layout;
    layout.recompute = recompute;
    layout.recomputed = set;
    layout.offload.activations_of = groups({OperatorGroup::Norms});  // what each saves is known
    return costs.of(plan.network.chain[1], layout, 1, slice);
  };
  const BlockCost all = layer(Recompute::None, {});
  for (const OperatorGroup group : {OperatorGroup::Norms, OperatorGroup::Qkv,
                                    OperatorGroup::Attention, OperatorGroup::MlpActivation}) {
    const BlockCost some = layer(Recompute::Operators, groups({group}));
    EXPECT_EQ(all.saved - some.saved, (*all.saved_by_group)[static_cast<std::size_t>(group)])
        << to_text(group);
    EXPECT_EQ(some.working, all.saved - some.saved);
    EXPECT_EQ(some.context_gradients, all.context_gradients);
    EXPECT_GT(some.recompute.time.ps, 0);
    EXPECT_EQ(some.backward.time - some.recompute.time, all.backward.time);
  }
  const BlockCost products = layer(Recompute::Products, {});
  EXPECT_LT(products.saved, all.saved);
  EXPECT_GT(products.saved, layer(Recompute::Full, {}).saved);
}

// Meshes cut samples, heads and widths, never the tokens of a slice.
TEST(Slices, OfTensorMeshesAddUpToTheMicroBatch) {
  Plan plan = sliced("seq1f1b", 8);
  plan.micro_batch = 4;
  BlockPlan& layout = plan.blocks.front().layout;
  plan.dp = 1;
  for (const auto& [mesh, tp] : {std::pair(TensorMesh::TwoD, 4), std::pair(TensorMesh::ThreeD, 8),
                                 std::pair(TensorMesh::TwoAndHalfD, 8)}) {
    layout.tensor_parallel = mesh;
    layout.tp = tp;
    layout.tp_rows = 2;
    layout.tp_depth = mesh == TensorMesh::TwoD ? 1 : 2;
    plan.pp = 8 / tp * 2;
    plan.stage_blocks = even_stages(plan.network, plan.pp);
    ASSERT_EQ(problem(plan), "");
    BlockCosts costs(plan);
    const BlockCost& whole = costs.of(plan.network.chain[1], layout, plan.micro_batch);
    double flops = 0;
    ByteCount saved;
    for (const Slice& slice : slices_of(plan)) {
      const BlockCost& part = costs.of(plan.network.chain[1], layout, plan.micro_batch, slice);
      flops += part.forward.flops.value() + part.backward.flops.value();
      saved += part.saved;
      // Keys and values of 4 samples and 16 heads of 64, divided by all ranks.
      EXPECT_EQ(part.context_gradients, ByteCount(slice.tokens * 2 * 4 * 16 * 64 * 2 / tp));
    }
    EXPECT_NEAR(flops, whole.forward.flops.value() + whole.backward.flops.value(), 1e-12 * flops);
    EXPECT_EQ(saved, whole.saved);
    expect_balanced(plan, slices_of(plan)[1]);
    EXPECT_GT(simulate(plan).iteration_time.value(), 0);
  }
}

// Keys and values of every slice stay on the context ranks that made them: slice i gathers those of
// slices 0 to i, and scatters their gradients. Kernels and what they save add up to the whole.
TEST(Slices, GatherKeysAndValuesOfEarlierSlices) {
  Plan plan = sliced("seq1f1b", 8);
  BlockPlan& layout = plan.blocks.front().layout;
  layout.cp = 4;
  plan.dp = 1;
  plan.pp = 2;
  plan.stage_blocks = even_stages(plan.network, plan.pp);
  const int layer = plan.network.chain[1];
  for (const ContextParallel context :
       {ContextParallel::Ring, ContextParallel::AllGather, ContextParallel::Mix}) {
    layout.context = context;
    layout.ulysses_degree = context == ContextParallel::Mix ? 2 : 1;
    ASSERT_EQ(problem(plan), "");
    BlockCosts costs(plan);
    const auto traffic = [&](const std::vector<Step>& steps, sim::CommKind kind) {
      double bytes = 0;
      for (const Step& step : steps) {
        bytes += step.collective && step.axis == Axis::Context && step.comm == kind
                     ? step.bytes.value()
                     : 0;
      }
      return bytes;
    };
    const auto bytes = [&](const Slice& slice, bool forward) {
      const BlockSteps steps = lower_block(costs.block_context(layer, layout, 1, slice));
      return forward ? traffic(steps.forward, sim::CommKind::AllGather)
                     : traffic(steps.backward, sim::CommKind::ReduceScatter);
    };
    const BlockCost& whole = costs.of(layer, layout, 1);
    const std::vector<Slice> slices = slices_of(plan);
    double flops = 0;
    ByteCount saved;
    for (const Slice& slice : slices) {
      const BlockCost& part = costs.of(layer, layout, 1, slice);
      flops += part.forward.flops.value() + part.backward.flops.value();
      saved += part.saved;
      // Two tensors of 16 heads of 64, divided by tensor and context ranks.
      EXPECT_EQ(part.context_gradients, ByteCount(slice.tokens * 2 * 16 * 64 * 2 / (2 * 4)));
      if (layout.context == ContextParallel::AllGather) {  // a ring's hide under its kernels
        const double share =
            static_cast<double>(slice.start + slice.tokens) / static_cast<double>(plan.sequence);
        EXPECT_DOUBLE_EQ(bytes(slice, true), share * bytes({}, true));
        EXPECT_DOUBLE_EQ(bytes(slice, false), share * bytes({}, false));
      }
    }
    EXPECT_NEAR(flops, whole.forward.flops.value() + whole.backward.flops.value(), 1e-12 * flops);
    EXPECT_EQ(saved, whole.saved);
    expect_balanced(plan, slices[1]);
    EXPECT_GT(simulate(plan).iteration_time.value(), 0);
  }
}

// Where links are slow a slice waits for the keys of all before it.
TEST(Slices, LaterSlicesOfARingSendMore) {
  Plan plan = long_sequence("seq1f1b", 8);
  BlockPlan& layout = plan.blocks.front().layout;
  layout.cp = 8;
  layout.tp = 1;
  plan.dp = 1;
  plan.pp = 2;
  plan.stage_blocks = even_stages(plan.network, plan.pp);
  plan.cluster.node.scale_up.nccl_bandwidth = BytesPerSecond(1e9);
  plan.cluster.node.scale_up.in_switch_reduction = false;
  ASSERT_EQ(problem(plan), "");
  BlockCosts costs(plan);
  const auto exposed = [&](int slice) {
    double time = 0;
    const BlockContext context = costs.block_context(
        plan.network.chain[1], layout, 1, slices_of(plan)[static_cast<std::size_t>(slice)]);
    for (const Step& step : lower_block(context).forward) {
      time += step.collective && step.axis == Axis::Context ? step.time.value() : 0;
    }
    return time;
  };
  EXPECT_GT(exposed(0), 0);
  for (int slice = 1; slice < 8; ++slice) {
    EXPECT_GT(exposed(slice), exposed(slice - 1));
  }
}

// What attention reads is never recomputed, so a set that makes nothing else runs nothing.
TEST(Slices, KeysAndValuesAreNotRecomputed) {
  Plan plan = sliced("seq1f1b", 8, 1, models::load_network("llama3-8b").spec);
  BlockPlan& layout = plan.blocks.front().layout;
  layout.recompute = Recompute::Operators;
  layout.recomputed = groups({OperatorGroup::Rotary});
  BlockCosts costs(plan);
  const int layer = plan.network.chain[1];
  const PassCost whole = costs.of(layer, layout, 1).recompute;
  EXPECT_EQ(whole.launches, 2);  // of queries and of keys
  EXPECT_EQ(costs.of(layer, layout, 1, slices_of(plan)[3]).recompute.launches, 1);
}

TEST(Slices, LaterSlicesAttendToMoreAndCostMore) {
  const Plan plan = long_sequence("seq1f1b", 8);
  BlockCosts costs(plan);
  const BlockPlan& layout = plan.blocks.front().layout;
  SimTime before;
  for (const Slice& slice : slices_of(plan)) {
    const BlockCost& layer = costs.of(plan.network.chain[1], layout, 1, slice);
    EXPECT_GT(layer.forward.time, before);
    before = layer.forward.time;
    // Keys and values of 16 heads of 64 over two ranks.
    EXPECT_EQ(layer.context_gradients, ByteCount(slice.tokens * 2 * 8 * 64 * 2));
    const BlockCost& head = costs.of(plan.network.chain.back(), layout, 1, slice);
    EXPECT_EQ(head.forward.time,
              costs.of(plan.network.chain.back(), layout, 1, {0, 8192}).forward.time);
  }
}

TEST(Slices, FillTheBubbleOfFewMicroBatches) {
  Plan plan = long_sequence("1f1b", 1);
  plan.batch = 4;  // two micro-batches on four stages
  const Simulation whole = simulate(plan);
  plan.schedule = "seq1f1b";
  plan.slices = 16;
  const Simulation cut = simulate(plan);
  EXPECT_LT(cut.bubble_fraction, whole.bubble_fraction * 0.7);
  EXPECT_LT(cut.iteration_time, whole.iteration_time * 0.8);
  EXPECT_EQ(cut.hfu_fraction / cut.mfu_fraction, whole.hfu_fraction / whole.mfu_fraction);
}

// Stage i holds n + p - 1 - i slices when the backward of a micro-batch begins; it begins the
// gradients of the keys and values of all slices but the last.
TEST(Slices, ActivationsAreThoseOfTheSlicesAlive) {
  constexpr int kSlices = 8;
  const Plan plan = sliced("seq1f1b", kSlices);
  const Simulation result = simulate(plan);
  BlockCosts costs(plan);
  const BlockCost& layer =
      costs.of(plan.network.chain[1], plan.blocks.front().layout, 1, {0, 256, false});
  for (int stage = 0; stage < plan.pp; ++stage) {
    const std::int64_t layers = 2;
    EXPECT_EQ(result.memory[static_cast<std::size_t>(stage)].activations,
              layer.saved * ((kSlices + plan.pp - 1 - stage) * layers));
  }
  BlockCost whole = costs.of(plan.network.chain[1], plan.blocks.front().layout, 1);
  EXPECT_EQ(result.memory[1].workspace, layer.context_gradients * (2 * (kSlices - 1)));
  EXPECT_EQ(simulate(sliced("1f1b", 1)).memory[1].workspace, whole.working);
  // TeraPipe holds all micro-batches.
  const Simulation all = simulate(sliced("terapipe", kSlices));
  EXPECT_EQ(all.memory[1].activations, layer.saved * (2 * 4 * kSlices));
}

TEST(Slices, SaveMemoryAndLogits) {
  const Simulation whole = simulate(long_sequence("1f1b", 1));
  for (const char* schedule : {"seq1f1b", "slimpipe"}) {
    const Simulation cut = simulate(long_sequence(schedule, 16));
    EXPECT_LT(cut.memory.front().activations * 2, whole.memory.front().activations);
    EXPECT_LE(cut.memory.back().ends, whole.memory.back().ends);
    EXPECT_LT(cut.memory.back().workspace, whole.memory.back().workspace);
  }
}

TEST(Slices, ExchangeBalancesAttention) {
  const Simulation alone = simulate(long_sequence("seq1f1b", 4));
  const Simulation shared = simulate(long_sequence("slimpipe", 4));
  EXPECT_LT(shared.iteration_time, alone.iteration_time);
  // With as many slices as stages each takes the mean of all, and no work is lost.
  const Plan plan = long_sequence("slimpipe", 4);
  const Simulation spans = simulate(plan, {.record_spans = true});
  const std::vector<SimTime>& forward = spans.passes.unit_forward;
  EXPECT_NEAR(to_seconds(forward[0]).value(), to_seconds(forward[3]).value(), 1e-11);
  const Simulation other = simulate(long_sequence("seq1f1b", 4), {.record_spans = true});
  const auto sum = [](const std::vector<SimTime>& times) {
    return to_seconds(std::accumulate(times.begin(), times.end(), SimTime{})).value();
  };
  EXPECT_NEAR(sum(forward), sum(other.passes.unit_forward), 1e-9);
  EXPECT_GE(sum(forward), sum(other.passes.unit_forward));
}

// A group of four slices goes through both chunks before the next four: where some devices have
// begun the next group, all still take the mean of what they work on.
TEST(Slices, ExchangeAttentionBetweenGroups) {
  constexpr int kSlices = 8;
  models::NetworkSpec spec = small_spec();
  spec.sequence = 65536;
  spec.position = models::PositionKind::None;
  const Plan plan = sliced("slimpipe", kSlices, 2, spec);
  const auto passes = simulate(plan, {.record_spans = true}).passes;
  const auto forward = [&](int device, int pass) {  // the pass-th of a device's order
    const int stage = pass / 4 % 2 * 4 + device;
    const int slice = pass / 8 * 4 + pass % 4;
    return to_seconds(passes.unit_forward[static_cast<std::size_t>(stage * 4 * kSlices + slice)]);
  };
  for (int pass = 0; pass + 1 < 2 * kSlices; ++pass) {  // devices with two layers and no ends
    EXPECT_NEAR(forward(1, pass + 1).value(), forward(2, pass).value(), 1e-10) << pass;
  }
  EXPECT_GT(forward(1, 7).value(), forward(1, 6).value());  // device 0 is at the next group
}

TEST(Slices, MayDiffer) {
  Plan plan = long_sequence("terapipe", 4);
  plan.batch = 2;
  const Seconds equal = simulate(plan).iteration_time;
  plan.slice_tokens = {22528, 16384, 14336, 12288};
  EXPECT_EQ(problem(plan), "");
  EXPECT_LT(simulate(plan).iteration_time, equal);
  const Plan again = read_plan(to_json(plan), "again");
  EXPECT_EQ(again.slice_tokens, plan.slice_tokens);
  EXPECT_EQ(simulate(again).iteration_time, simulate(plan).iteration_time);
}

TEST(Slices, WhatCannotBeCutIsSaid) {
  const auto broken = [](auto change) {
    Plan plan = sliced("seq1f1b", 8);
    change(plan);
    return problem(plan);
  };
  EXPECT_EQ(broken([](Plan&) {}), "");
  EXPECT_THAT(broken([](Plan& plan) { plan.slices = 4096; }),
              HasSubstr("more than the 2048 tokens of a sequence: set slices to 2048"));
  EXPECT_THAT(broken([](Plan& plan) { plan.sequence = plan.slices = 8192; }),
              HasSubstr("at most 4096"));
  EXPECT_THAT(broken([](Plan& plan) { plan.slices = 7; }),
              HasSubstr("not divisible by slices = 7: set slices to 8"));
  EXPECT_THAT(broken([](Plan& plan) { plan.slices = 0; }), HasSubstr("slices is 0"));
  EXPECT_THAT(broken([](Plan& plan) { plan.schedule = "1f1b"; }),
              HasSubstr("set slices to 1, or the schedule to \"seq1f1b\""));
  EXPECT_THAT(
      broken([](Plan& plan) { plan.schedule = "slimpipe", plan.network.spec.causal = false; }),
      HasSubstr("set slices to 1 and the schedule to \"1f1b\""));
  EXPECT_THAT(broken([](Plan& plan) { plan.schedule = "slimpipe", plan.slices = 2; }),
              HasSubstr("set slices to 4"));
  EXPECT_THAT(broken([](Plan& plan) {
                plan.slices = 2;
                plan.slice_tokens = {1024, 1000};
              }),
              HasSubstr("the last slice must have 1024"));
  EXPECT_THAT(broken([](Plan& plan) {
                plan.slices = 1;
                plan.slice_tokens = {100};
              }),
              HasSubstr("the last slice must have 2048"));
  EXPECT_THAT(broken([](Plan& plan) {
                plan.schedule = "slimpipe";
                plan.slices = 4;
                plan.slice_tokens = {1024, 512, 256, 256};
              }),
              HasSubstr("equal length"));
  for (const ContextParallel context :
       {ContextParallel::Ring, ContextParallel::AllGather, ContextParallel::Ulysses}) {
    const auto cut = [&](int slices) {
      return broken([&](Plan& plan) {
        plan.dp = 1;
        plan.slices = slices;
        plan.blocks.front().layout.cp = 2;
        plan.blocks.front().layout.context = context;
      });
    };
    EXPECT_EQ(cut(8), "");
    EXPECT_THAT(cut(2048), HasSubstr("set slices to "));
    if (context == ContextParallel::Ring) {
      EXPECT_THAT(cut(1024), HasSubstr("two chunks each): it must be a multiple of 4: set slices"));
    } else {
      EXPECT_EQ(cut(1024), "");
    }
  }
  EXPECT_THAT(broken([](Plan& plan) {
                plan.slices = 2048;
                plan.blocks.front().layout.sequence_parallel = true;
              }),
              HasSubstr("set slices to 1024"));
  models::NetworkSpec encoder = small_spec();
  encoder.family = models::Family::Bert;
  encoder.causal = false;
  EXPECT_THAT(broken([&](Plan& plan) { plan.network = models::build_network(encoder, "test"); }),
              HasSubstr("causal decoder"));
}

TEST(Slices, AreNotExpanded) {
  const Plan plan = sliced("seq1f1b", 4);
  EXPECT_THAT(*why_not_flat(plan), HasSubstr("sequences are cut into slices"));
  EXPECT_THROW((void)flat_program(plan), Error);
}

}  // namespace
}  // namespace orrery::plan
