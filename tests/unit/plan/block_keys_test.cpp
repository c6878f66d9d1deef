// SPDX-License-Identifier: Apache-2.0
// Blocks whose costs are kept for several layouts: what lowering makes of each of them.
#include <gtest/gtest.h>

#include "plan/block_rules.hpp"
#include "tests/unit/plan/plan_fixture.hpp"

namespace orrery::plan {
namespace {

class BlockKeys : public testing::Test {
 protected:
  static models::NetworkSpec spec() {
    models::NetworkSpec spec = small_spec();
    spec.moe = {.experts = 16, .top_k = 2, .ffn_hidden = 512, .first_dense_layers = 1};
    return spec;
  }

  BlockPlan layout(int ep) const { return {.tp = 2, .cp = 2, .ep = ep, .sequence_parallel = true}; }

  // As `layout` says, with the data ranks that share experts, whatever is kept.
  BlockSteps lowered(int block, const BlockPlan& layout) const {
    const BlockContext kept = costs_.block_context(block, layout, 2);
    const Mesh mesh = mesh_of(layout, layout.ep);
    const BlockContext context{
        kept.block,        layout,           mesh,           {2 * layout.ep, kept.extents.sequence},
        kept.device,       kept.collectives, kept.execution, kept.precision,
        kept.gpus_per_node};
    return lower_block(context);
  }

  static void expect_equal(const std::vector<Step>& a, const std::vector<Step>& b) {
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t index = 0; index < a.size(); ++index) {
      EXPECT_EQ(a[index].name, b[index].name);
      EXPECT_EQ(a[index].time, b[index].time) << a[index].name;
      EXPECT_EQ(a[index].axes, b[index].axes) << a[index].name;
      EXPECT_EQ(a[index].after, b[index].after) << a[index].name;
    }
  }

  // That what is kept for a layout is what it costs by itself.
  void expect_own(int block, const BlockPlan& layout) {
    const BlockSteps kept = costs_.steps_of(block, layout, 2);
    const BlockSteps own = lowered(block, layout);
    EXPECT_FALSE(own.forward.empty());
    expect_equal(kept.forward, own.forward);
    expect_equal(kept.backward, own.backward);
    const BlockCost& cost = costs_.of(block, layout, 2);
    const models::Block& described = plan_.network.blocks[static_cast<std::size_t>(block)];
    const BlockRules rules = rules_of(layout, plan_.execution.vocab_parallel);
    const auto states = state_groups(described, rules, mesh_of(layout, layout.ep));
    ASSERT_EQ(cost.states.size(), states.size());
    for (std::size_t index = 0; index < states.size(); ++index) {
      EXPECT_EQ(cost.states[index].reduced, states[index].reduced);
      EXPECT_EQ(cost.states[index].elements, states[index].elements);
    }
  }

  int head() const { return plan_.network.chain.back(); }

  Plan plan_ = small_plan(spec());
  BlockCosts costs_{plan_};
};

TEST_F(BlockKeys, WithoutExpertsThoseOfOthersDoNotMatter) {
  std::vector<BlockPlan> layouts(4, layout(8));
  layouts[1].expert_tp = 1;
  layouts[2].expert_cp = 1;
  layouts[3].context = ContextParallel::Ulysses;
  for (const BlockPlan& spread : layouts) {
    BlockPlan without = layout(1);
    without.context = spread.context;
    for (const int block : {plan_.network.chain[0], plan_.network.chain[1], head()}) {
      EXPECT_EQ(&costs_.of(block, spread, 2), &costs_.of(block, without, 2));
      expect_own(block, spread);
    }
    const int experts = plan_.network.chain[2];
    EXPECT_NE(&costs_.of(experts, spread, 2), &costs_.of(experts, without, 2));
  }
}

TEST_F(BlockKeys, ExpertRanksBetweenThoseOfAGroupMoveThemApart) {
  BlockPlan apart = layout(8);
  apart.ep_inside = ExpertsInside::Tensor;
  const int dense = plan_.network.chain[1];
  EXPECT_NE(&costs_.of(dense, apart, 2), &costs_.of(dense, layout(8), 2));
  EXPECT_GT(costs_.of(dense, apart, 2).forward.time, costs_.of(dense, layout(8), 2).forward.time);
}

TEST_F(BlockKeys, WithoutAttentionTheKindOfContextParallelismDoesNotMatter) {
  for (const ContextParallel kind : {ContextParallel::Ulysses, ContextParallel::AllGather}) {
    BlockPlan other = layout(1);
    other.context = kind;
    for (const int block : {plan_.network.chain[0], head()}) {
      EXPECT_EQ(&costs_.of(block, other, 2), &costs_.of(block, layout(1), 2));
      expect_own(block, other);
    }
    const int dense = plan_.network.chain[1];
    EXPECT_NE(&costs_.of(dense, other, 2), &costs_.of(dense, layout(1), 2));
  }
}

// Keys and values alone ride a ring: the head has none, whatever its context ranks cut.
TEST_F(BlockKeys, AlsoWhereItsRanksHaveOtherVariables) {
  BlockPlan ulysses = layout(1);
  ulysses.context = ContextParallel::Ulysses;
  ulysses.variables[static_cast<std::size_t>(Axis::Context)] =
      VarList({models::Var::Hidden, models::Var::Seq});
  BlockPlan ring = ulysses;
  ring.context = ContextParallel::Ring;
  EXPECT_EQ(&costs_.of(head(), ulysses, 2), &costs_.of(head(), ring, 2));
  expect_own(head(), ring);
}

}  // namespace
}  // namespace orrery::plan
