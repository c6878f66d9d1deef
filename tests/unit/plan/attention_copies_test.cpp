// SPDX-License-Identifier: Apache-2.0
// Copies between the layouts of projections and attention, and of the gradients of what was split.
#include "plan/block/attention_copies.hpp"

#include <gtest/gtest.h>

#include "plan/block/cost.hpp"
#include "tests/unit/plan/plan_fixture.hpp"

namespace orrery::plan {
namespace {

Plan copying_plan(const models::NetworkSpec& spec) { return one_replica(spec, {}); }

BlockCost layer_of(const Plan& plan) {
  BlockCosts costs(plan);
  return costs.of(plan.network.chain[1], plan.layout_of(1), plan.micro_batch);
}

// What a flag adds to a layer: launches of both passes, and streams of 2 bytes an element that are
// read and written at full bandwidth in the same time.
struct Added {
  int forward;
  int backward;
  double forward_streams;
  double backward_streams;
};
Added added_by(bool Execution::*flag, Plan plan) {
  const BlockCost direct = layer_of(plan);
  plan.execution.*flag = true;
  const BlockCost copied = layer_of(plan);
  const double stream =
      2 * 2.0 * static_cast<double>(plan.micro_batch * plan.sequence * plan.network.spec.hidden) /
      plan.cluster.gpu.hbm_bandwidth.value();
  return {copied.forward.launches - direct.forward.launches,
          copied.backward.launches - direct.backward.launches,
          (copied.forward.compute - direct.forward.compute).value() / stream,
          (copied.backward.compute - direct.backward.compute).value() / stream};
}

TEST(AttentionCopiesTest, QueriesKeysAndValuesAndTheContext) {
  Plan plan = copying_plan(small_spec());
  plan.micro_batch = 2;
  const Added fused = added_by(&Execution::attention_copies, plan);
  EXPECT_EQ(fused.forward, 4);  // of context, q, k and v
  EXPECT_EQ(fused.backward, 2);
  EXPECT_GT(fused.forward_streams, 4.0);
  EXPECT_LT(fused.forward_streams, 6.0);
  EXPECT_GT(fused.backward_streams, 4.0);
}

// Products of batches read the gradient of the context in the projection's order.
TEST(AttentionCopiesTest, MaterialisedScoresNeedNoCopyOfTheContextsGradient) {
  Plan plan = copying_plan(small_spec());
  plan.micro_batch = 2;
  plan.execution.fused_attention = false;
  const Added unfused = added_by(&Execution::attention_copies, plan);
  EXPECT_EQ(unfused.forward, 1);
  EXPECT_EQ(unfused.backward, 1);
  EXPECT_GT(unfused.forward_streams, 1.0);
  EXPECT_GT(unfused.backward_streams, 3.0);
  EXPECT_LT(unfused.backward_streams, 4.0);
}

// [s, b, h] and [b, s, h] of one sequence are the same bytes: what lies in the projection's result
// is copied alone, which q and k behind rotary positions do not.
TEST(AttentionCopiesTest, OneSequenceHasOneOrder) {
  Plan plan = copying_plan(small_spec());
  plan.micro_batch = 1;
  const Added learned = added_by(&Execution::attention_copies, plan);
  EXPECT_EQ(learned.forward, 3);
  EXPECT_EQ(learned.backward, 1);
  models::NetworkSpec spec = small_spec();
  spec.position = models::PositionKind::Rotary;
  Plan rotary = copying_plan(spec);
  rotary.micro_batch = 1;
  const Added values = added_by(&Execution::attention_copies, rotary);
  EXPECT_EQ(values.forward, 1);
  EXPECT_EQ(values.backward, 1);
  EXPECT_LT(values.forward_streams, 2.0);
  plan.execution.fused_attention = false;  // products of batches leave the context by heads
  EXPECT_EQ(added_by(&Execution::attention_copies, plan).forward, 1);
}

// Of q, k and v, and of the halves that a gate multiplies.
TEST(AttentionCopiesTest, AutogradJoinsGradientsOfWhatItSplit) {
  Plan plan = copying_plan(small_spec());
  const Added attention = added_by(&Execution::joins_gradients, plan);
  EXPECT_EQ(attention.forward, 0);
  EXPECT_EQ(attention.backward, 1);
  EXPECT_GT(attention.backward_streams, 3.0);
  EXPECT_LT(attention.backward_streams, 4.0);
  plan.execution.fused_projections = false;
  EXPECT_EQ(added_by(&Execution::joins_gradients, plan).backward, 0);
  models::NetworkSpec spec = small_spec();
  spec.activation = models::Activation::SwiGlu;
  Plan gated = copying_plan(spec);
  gated.execution.attention_copies = true;  // which join those of q, k and v
  EXPECT_EQ(added_by(&Execution::joins_gradients, gated).backward, 0);
  gated.execution.fused_kernels = false;
  const Added gate = added_by(&Execution::joins_gradients, gated);
  EXPECT_EQ(gate.backward, 1);
  EXPECT_GT(gate.backward_streams, 8.0);  // two halves of four widths
  EXPECT_LT(gate.backward_streams, 11.0);
}

}  // namespace
}  // namespace orrery::plan
