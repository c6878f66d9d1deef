// SPDX-License-Identifier: Apache-2.0
// Reports of layouts: states, tiers, what is saved and what travels between stages, against what
// the simulation of the plan counts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "plan/packs.hpp"
#include "plan/simulation/layout_report.hpp"
#include "plan/simulation/simulate.hpp"
#include "plan/stage/stage.hpp"
#include "tests/unit/plan/pipeline_fixture.hpp"

namespace orrery::plan {
namespace {

using testing::ElementsAre;

ByteCount reported_bytes(const Plan& plan, HeldKind kind, Tier tier) {
  ByteCount bytes;
  for (const BlockReport& block : report_layouts(plan)) {
    for (const HeldTensor& held : block.tensors) {
      bytes += held.kind == kind && held.tier == tier ? held.bytes * block.count : ByteCount();
    }
  }
  return bytes;
}

// By ZeRO stage, and where the optimizer lives.
TEST(HeldTensors, StatesAreThoseOfTheMemory) {
  for (const int stage : {0, 1, 2, 3}) {
    for (const Tier tier : {Tier::Device, Tier::Host}) {
      BlockPlan layout;
      layout.zero_stage = stage;
      layout.offload.optimizer = tier;
      const Plan plan = one_stage_plan(layout);
      BlockCosts costs(plan);
      const StageCost whole = add_up_stage(stage_contents(plan).front(), plan, costs);
      const ByteCount optimizer = reported_bytes(plan, HeldKind::Optimizer, tier);
      EXPECT_GT(optimizer.value(), 0);
      EXPECT_EQ(optimizer, tier == Tier::Host ? whole.states.host : whole.states.optimizer);
      EXPECT_EQ(reported_bytes(plan, HeldKind::Gradient, Tier::Device), whole.states.gradients);
    }
  }
}

std::vector<std::string> tensors_of_layer(const Plan& plan, HeldUse use) {
  std::vector<std::string> names;
  const std::vector<BlockReport> reports = report_layouts(plan);
  for (const HeldTensor& held : reports[1].tensors) {
    if (held.use == use) {
      names.push_back(held.name);
    }
  }
  return names;
}

TEST(HeldTensors, SayWhatIsSavedAndWhatRunsAgain) {
  BlockPlan layout;
  const auto saved_as = [&](Recompute recompute) {
    layout.recompute = recompute;
    return tensors_of_layer(one_stage_plan(layout), HeldUse::Saved);
  };
  const auto again_as = [&](Recompute recompute) {
    layout.recompute = recompute;
    return tensors_of_layer(one_stage_plan(layout), HeldUse::Recomputed);
  };
  const std::vector<std::string> all = saved_as(Recompute::None);
  EXPECT_TRUE(again_as(Recompute::None).empty());
  EXPECT_THAT(saved_as(Recompute::Full), ElementsAre("hidden"));
  EXPECT_EQ(again_as(Recompute::Full).size() + 1, all.size());
  layout.recomputed = parse_operator_set("norms", "test");
  const std::vector<std::string> norms = again_as(Recompute::Operators);
  EXPECT_FALSE(norms.empty());
  for (const std::string& name : norms) {
    EXPECT_THAT(name, testing::HasSubstr("norm"));
  }
}

TEST(HeldTensors, WhatLeavesTheDeviceSaysWhere) {
  BlockPlan layout;
  layout.offload.activations = 0.5;
  layout.offload.activations_of = parse_operator_set("norms", "test");
  const Plan some = one_stage_plan(layout);
  std::size_t away = 0;
  const std::vector<BlockReport> blocks = report_layouts(some);
  for (const HeldTensor& held : blocks[1].tensors) {
    away += held.away > 0 ? 1U : 0U;
    EXPECT_TRUE(held.away == 0 || (held.away == 0.5 && held.tier == Tier::Host)) << held.name;
  }
  EXPECT_GT(away, 0U);
  layout.offload.activations_of = {};
  EXPECT_GT(reported_bytes(one_stage_plan(layout), HeldKind::Activation, Tier::Host).value(), 0);
  const std::vector<BlockReport> all = report_layouts(one_stage_plan(layout));
  for (const HeldTensor& held : all.front().tensors) {
    EXPECT_EQ(held.away, 0) << held.name;  // the embedding is no layer
  }
}

// One message for each boundary between devices: of interleaved stages one for each chunk, of a
// V-shaped pipeline none where it turns. What tensor ranks send in parts is gathered.
TEST(HeldTensors, MessagesBetweenStagesAreListed) {
  const auto messages = [](const Plan& plan, sim::PassKind pass, sim::CommKind kind) {
    int count = 0;
    double bytes = 0;
    for (const BlockReport& block : report_layouts(plan)) {
      for (const ReportedCollective& one : block.transfers) {
        count += one.pass == pass && one.kind == kind ? one.count : 0;
        bytes += one.pass == pass && one.kind == kind ? one.count * one.bytes.value() : 0;
      }
    }
    return std::pair(count, bytes);
  };
  const double stream = 2048 * 1024 * 2;
  const auto both = sim::PassKind::InputGrad;
  const PipelineShape shape{.pp = 4, .dp = 2, .tp = 2, .micro_batches = 8};
  Plan plan = in_pipeline(small_plan(), "1f1b", shape);
  EXPECT_EQ(messages(plan, both, sim::CommKind::SendReceive), std::pair(3, 3 * stream));
  EXPECT_EQ(messages(plan, sim::PassKind::Forward, sim::CommKind::SendReceive),
            std::pair(3, 3 * stream));
  plan.execution.split_transfers = true;
  EXPECT_EQ(messages(plan, both, sim::CommKind::SendReceive), std::pair(3, 3 * stream / 2));
  EXPECT_EQ(messages(plan, both, sim::CommKind::AllGather), std::pair(3, 3 * stream));
  const Plan turned = in_pipeline(small_plan(), "zb-v", {.pp = 4, .dp = 2, .tp = 2, .chunks = 2});
  EXPECT_EQ(messages(turned, both, sim::CommKind::SendReceive).first, 6);
}

// Streamed products and rings of attention move as many pieces as there are ranks.
TEST(HeldTensors, StreamedCollectivesSayHowManyPieces) {
  const auto pieces = [](const Plan& plan) {
    std::vector<int> list;
    const std::vector<BlockReport> reports = report_layouts(plan);
    for (const ReportedCollective& one : reports[1].collectives) {
      list.push_back(one.pieces);
    }
    return list;
  };
  BlockPlan layout;
  layout.tp = 4;
  layout.sequence_parallel = true;
  Plan plan = one_stage_plan(layout);
  EXPECT_THAT(pieces(plan), testing::Each(1));
  plan.execution.stream_tp = true;
  EXPECT_THAT(pieces(plan), testing::Each(4));
  BlockPlan ring;
  ring.cp = 4;
  EXPECT_THAT(pieces(one_stage_plan(ring)), testing::Each(4));
  ring.context = ContextParallel::AllGather;
  EXPECT_THAT(pieces(one_stage_plan(ring)), testing::Each(1));
}

// Packs on groups of their own sizes: a plan for each shape, largest groups first.
TEST(HeldTensors, PacksAreReportedByTheirShapes) {
  models::NetworkSpec spec = small_spec();
  spec.max_positions = 32768;
  Plan plan = small_plan(spec);
  plan.pp = 1;
  plan.dp = 8;
  plan.blocks.front().layout.tp = 2;
  plan.stage_blocks = even_stages(plan.network, 1);
  plan.schedule = "flexsp";
  plan.packs = {{Pack{4, {8192}}, Pack{4, {8191}}},
                {Pack{4, {4096, 4096}}, Pack{2, {512}}, Pack{1, {64}}, Pack{1, {64}}}};
  const std::vector<PackShape> shapes = pack_shapes(plan);
  ASSERT_EQ(shapes.size(), 3U);
  EXPECT_EQ(shapes[0].count, 3);
  EXPECT_EQ(shapes[1].count, 1);
  EXPECT_EQ(shapes[2].count, 2);
  const auto exchanges = [](const PackShape& shape) {
    std::vector<int> ranks;
    const std::vector<BlockReport> reports = report_layouts(shape.plan);
    for (const ReportedCollective& one : reports[1].collectives) {
      if (one.kind == sim::CommKind::AllToAll && one.pass == sim::PassKind::Forward) {
        ranks.push_back(one.ranks);
      }
    }
    return ranks;
  };
  EXPECT_THAT(exchanges(shapes[0]), testing::Each(4));
  EXPECT_FALSE(exchanges(shapes[0]).empty());
  EXPECT_THAT(exchanges(shapes[1]), testing::Each(2));
  EXPECT_TRUE(exchanges(shapes[2]).empty());
  EXPECT_EQ(report_layouts(shapes[2].plan)[1].tokens, 64);
}

}  // namespace
}  // namespace orrery::plan
