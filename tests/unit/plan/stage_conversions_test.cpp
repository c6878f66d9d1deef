// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "plan/block/relayout.hpp"
#include "plan/simulation/simulate.hpp"
#include "plan/stage/conversions.hpp"
#include "tests/unit/plan/pipeline_fixture.hpp"
#include "tests/unit/plan/plan_fixture.hpp"

namespace orrery::plan {
namespace {

// Embedding and head with one layout, the layers with another; both use the same devices.
Plan converting_plan(const std::string& schedule, int tp_of_ends) {
  Plan plan = small_plan();
  plan.schedule = schedule;
  BlockPlan layers = plan.blocks.front().layout;
  layers.sequence_parallel = true;
  BlockPlan ends = layers;
  ends.tp = tp_of_ends;
  ends.sequence_parallel = tp_of_ends > 1;
  plan.micro_batch = 4;
  const int length = static_cast<int>(plan.network.chain.size());
  plan.blocks = {{1, ends}, {length - 2, layers}, {1, ends}};
  // The degrees of the plan are those of its first block.
  plan.dp = 16 / plan.pp / tp_of_ends;
  plan.micro_batch = 8 / plan.dp;
  check_plan(plan, "plan");
  return plan;
}

TEST(EndConversions, TheStageWithTheLayerPaysInBothPasses) {
  const Plan plan = converting_plan("vocab-2", 2);
  BlockCosts costs(plan);
  std::vector<StageCost> stages;
  for (const StageContent& content : stage_contents(plan)) {
    stages.push_back(simulate_stage(content, plan, costs));
  }
  const std::vector<StageCost> before = stages;
  add_conversions(plan, costs, stages);
  const BlockPlan& ends = plan.blocks.front().layout;
  const BlockPlan& layers = plan.blocks[1].layout;
  const auto boundary = [&](int block, const BlockPlan& layout) {
    return costs.of(block, layout, plan.micro_batch_of(layout)).boundary;
  };
  const std::vector<int>& chain = plan.network.chain;
  const Relayout first = relayout(plan, ends, boundary(chain.front(), ends), layers,
                                  boundary(chain[1], layers), costs);
  const Relayout last = relayout(plan, costs, {chain[1], layers, chain.back(), ends});
  ASSERT_GT(first.forward + first.backward, Seconds());
  EXPECT_EQ(stages[0].forward - before[0].forward, to_sim_time(first.forward));
  EXPECT_EQ(stages[0].backward - before[0].backward, to_sim_time(first.backward));
  EXPECT_EQ(stages[1].forward - before[1].forward, to_sim_time(last.forward));
  EXPECT_EQ(stages[1].last_backward - before[1].last_backward, to_sim_time(last.backward));
  for (std::size_t shard = 2; shard < stages.size(); ++shard) {
    EXPECT_EQ(stages[shard].forward, before[shard].forward);
  }
}

TEST(EndConversions, NothingWhereNothingChanges) {
  const Plan same = converting_plan("vocab-2", 4);
  const Plan within = converting_plan("1f1b", 2);  // the blocks of the stages pay
  for (const Plan& plan : {same, within}) {
    BlockCosts costs(plan);
    std::vector<StageCost> stages;
    for (const StageContent& content : stage_contents(plan)) {
      stages.push_back(simulate_stage(content, plan, costs));
    }
    const std::vector<StageCost> before = stages;
    add_conversions(plan, costs, stages);
    for (std::size_t stage = 0; stage < stages.size(); ++stage) {
      EXPECT_EQ(stages[stage].forward, before[stage].forward);
      EXPECT_EQ(stages[stage].backward, before[stage].backward);
    }
  }
}

// Context ranks that balance the causal triangle hold other chunks than those that do not; after
// Ulysses, which reads all of them, either order will do.
TEST(StreamConversions, BalancedRanksExchangeTheirChunks) {
  Plan plan = small_plan();
  BlockPlan balanced;
  balanced.cp = 4;
  BlockPlan in_order = balanced;
  in_order.zigzag = false;
  const std::vector<StreamConversion> moved = stream_conversions(plan, balanced, in_order);
  ASSERT_EQ(moved.size(), 1U);
  EXPECT_EQ(moved.front().kind, sim::CommKind::AllToAll);
  EXPECT_EQ(moved.front().ranks(), 4);
  balanced.tp = in_order.tp = 2;
  balanced.sequence_parallel = in_order.sequence_parallel = true;
  EXPECT_EQ(stream_conversions(plan, in_order, balanced).front().ranks(), 8);
  EXPECT_TRUE(stream_conversions(plan, balanced, balanced).empty());
  BlockPlan ulysses = in_order;
  ulysses.context = ContextParallel::Ulysses;
  EXPECT_TRUE(stream_conversions(plan, balanced, ulysses).empty());
  plan.network.spec.causal = false;
  EXPECT_TRUE(stream_conversions(plan, balanced, in_order).empty());
}

// Of 8 ranks 4 exchange samples for positions and 2 hold the same of them: those slice first, or
// gather last, so that the exchange is of what a rank has without a copy.
TEST(StreamConversions, RanksExchangeWhatSlicesLeave) {
  const Plan plan = small_plan();
  const BlockPlan data;
  BlockPlan cut;
  cut.tp = 2;
  cut.cp = 4;
  cut.context = ContextParallel::Ulysses;
  const Bytes one(1 << 20);
  const auto there = stream_conversions(plan, data, cut);
  ASSERT_EQ(there.size(), 2U);
  EXPECT_EQ(there[0].kind, sim::CommKind::AllToAll);
  EXPECT_EQ(there[0].bytes(one, one * 2), one);
  EXPECT_EQ(there[1].kind, sim::CommKind::AllGather);
  EXPECT_EQ(there[1].bytes(one, one * 2), one * 2);
  const auto back = stream_conversions(plan, cut, data);
  ASSERT_EQ(back.size(), 1U);
  EXPECT_EQ(back[0].ranks(), 4);
  EXPECT_EQ(back[0].bytes(one * 2, one), one);
  // As they are timed.
  const BlockCosts costs(plan);
  const Relayout change = relayout(plan, data, ByteCount(1 << 20), cut, ByteCount(1 << 21), costs);
  const auto group = group_of(back[0].factors, plan.cluster.node.gpus);
  EXPECT_EQ(change.backward, costs.collectives().time(sim::CommKind::AllToAll, one, group));
}

// Sequence shards of two ranks that become samples, of ranks that come to cut the sequence instead:
// each needs positions that some of the others alone have.
TEST(StreamConversions, UnevenExchangesCountTheLargerSide) {
  Layout from;
  from.set(Axis::Context, Placement::sharded(Var::Seq));
  Layout to;
  to.set(Axis::Tensor, Placement::sharded(Var::Seq));
  to.set(Axis::Context, Placement::sharded(Var::Batch));
  Mesh mesh;
  mesh.size = {2, 1, 1, 1, 4, 1, 1, 1};
  const Bytes one(1 << 20);
  EXPECT_EQ(stream_conversions(mesh, from, mesh, to).front().bytes(one * 2, one), one * 2);
  EXPECT_EQ(stream_conversions(mesh, to, mesh, from).front().bytes(one, one * 2), one * 2);
  from.set(Axis::Tensor, Placement::sharded(Var::Batch));  // nothing is sliced
  EXPECT_EQ(stream_conversions(mesh, from, mesh, to).front().bytes(one, one), one);
}

Plan with_layouts_by_stage(const std::string& schedule, const BlockPlan& first,
                           const BlockPlan& second) {
  Plan plan = small_plan();
  plan.schedule = schedule;
  const int half = plan.stage_blocks.front();
  plan.blocks = {{half, first}, {static_cast<int>(plan.network.chain.size()) - half, second}};
  plan.dp = 8 / first.tp;
  plan.micro_batch = 8 / plan.dp;
  check_plan(plan, "plan");
  return plan;
}

// Where two layouts meet at the boundary of stages the stage behind converts, as its first block
// would if they met within it; of a copy of the model in the other direction, too.
TEST(StageConversions, TheStageBehindABoundaryPaysInBothPasses) {
  const auto [cut, whole] = token_layouts(8);
  const BlockPlan data;
  for (const auto& [first, second] :
       {std::pair(cut, whole), std::pair(whole, cut), std::pair(data, cut)}) {
    for (const char* schedule : {"1f1b", "zb-h1", "chimera"}) {
      const Plan plan = with_layouts_by_stage(schedule, first, second);
      BlockCosts costs(plan);
      std::vector<StageCost> stages;
      for (const StageContent& content : stage_contents(plan)) {
        stages.push_back(simulate_stage(content, plan, costs));
      }
      const std::vector<StageCost> before = stages;
      add_conversions(plan, costs, stages);
      const int layer = plan.network.chain[1];
      const auto boundary = [&](const BlockPlan& layout) {
        return costs.of(layer, layout, plan.micro_batch_of(layout)).boundary;
      };
      const Relayout change =
          relayout(plan, first, boundary(first), second, boundary(second), costs);
      ASSERT_GT(change.forward + change.backward, Seconds());
      for (std::size_t stage = 0; stage < stages.size(); ++stage) {
        const bool pays = stage % 2 == 1;
        EXPECT_EQ(stages[stage].forward - before[stage].forward,
                  pays ? to_sim_time(change.forward) : SimTime{});
        EXPECT_EQ(stages[stage].backward - before[stage].backward,
                  pays ? to_sim_time(change.backward) : SimTime{});
      }
    }
  }
}

// The passes that are simulated have them.
TEST(StageConversions, BoundariesOfStagesAreNotFree) {
  BlockPlan whole;
  whole.tp = 8;
  const Plan plan = with_layouts_by_stage("1f1b", BlockPlan(), whole);
  Simulator simulator(plan);
  const Simulation simulation = simulator.run(plan, {.record_spans = true});
  BlockCosts costs(plan);
  const StageCost alone = simulate_stage(stage_contents(plan)[1], plan, costs);
  EXPECT_GT(simulation.passes.forward[1], alone.forward);
  EXPECT_LE(simulator.lower_bound(plan), simulation.iteration_time);
}

// Slices convert what is theirs.
TEST(StageConversions, SlicesPayEach) {
  const auto [cut, whole] = token_layouts(8);
  Plan plan = with_layouts_by_stage("seq1f1b", cut, whole);
  plan.slices = 2;
  check_plan(plan, "plan");
  BlockCosts costs(plan);
  SliceCosts slices =
      slice_costs(plan, stage_contents(plan), [&](const StageContent& content, const Slice& slice) {
        return simulate_stage(content, plan, costs, slice);
      });
  const SliceCosts before = slices;
  add_conversions(plan, costs, slices);
  for (std::size_t slice = 0; slice < 2; ++slice) {
    EXPECT_EQ(slices[0][slice].forward, before[0][slice].forward);
    EXPECT_GT(slices[1][slice].forward, before[1][slice].forward);
    EXPECT_EQ(slices[1][slice].forward - before[1][slice].forward,
              to_sim_time(slices[1][slice].relayout_forward));
  }
}

// The bounds leave conversions out and stay below.
TEST(EndConversions, BoundsHold) {
  for (const char* schedule : {"vocab-1", "vocab-2", "interlaced"}) {
    const Plan plan = converting_plan(schedule, 2);
    Simulator simulator(plan);
    const Seconds time = simulator.run(plan).iteration_time;
    EXPECT_LE(simulator.lower_bound(plan), time);
    EXPECT_LE(simulator.list_bound(plan), time);
  }
}

}  // namespace
}  // namespace orrery::plan
