// SPDX-License-Identifier: Apache-2.0
// Full recomputation in PyTorch ends before the last product, whose result nobody reads.
#include <gtest/gtest.h>

#include "plan/block/cost.hpp"
#include "studies/rows/row_plan.hpp"
#include "tests/unit/studies/testing.hpp"

namespace orrery::studies {
namespace {

using plan::OperatorGroup;
using plan::Recompute;
using testing::Changes;

plan::Plan stopped_plan(Changes changes) {
  changes.merge(Changes{{"framework", "Composer+PyTorch FSDP"},
                        {"recompute", "full"},
                        {"tp", "1"},
                        {"pp", "1"},
                        {"dp", "8"},
                        {"zero_stage", "3"},
                        {"sequence_parallel", "0"},
                        {"num_microbatches", "2"}});
  return row_plan(testing::row_of(changes)).value();
}

const plan::BlockPlan& layer_of(const plan::Plan& plan) { return plan.layout_of(1); }

TEST(StoppedRecomputeTest, TheLastProductAloneDoesNotRunAgain) {
  const plan::Plan stopped = stopped_plan({});
  ASSERT_EQ(layer_of(stopped).recompute, Recompute::Operators);
  for (const OperatorGroup group :
       {OperatorGroup::Norms, OperatorGroup::Qkv, OperatorGroup::Attention, OperatorGroup::MlpUp,
        OperatorGroup::Residuals}) {
    EXPECT_TRUE(layer_of(stopped).recomputed.has(group)) << to_text(group);
  }
  EXPECT_FALSE(layer_of(stopped).recomputed.has(OperatorGroup::MlpDown));
  plan::BlockPlan full = layer_of(stopped);
  full.recompute = Recompute::Full;
  plan::BlockCosts costs(stopped);
  const int block = stopped.network.chain[1];
  const plan::BlockCost less = costs.of(block, layer_of(stopped), stopped.micro_batch);
  const plan::BlockCost all = costs.of(block, full, stopped.micro_batch);
  const models::NetworkSpec& spec = stopped.network.spec;
  const double product = 2.0 * static_cast<double>(stopped.micro_batch * spec.sequence *
                                                   spec.hidden * spec.ffn_hidden);
  EXPECT_DOUBLE_EQ((all.recompute.flops - less.recompute.flops).value(), product);
  EXPECT_LT(less.backward.time, all.backward.time);
  EXPECT_EQ(less.saved, all.saved);  // the layer's input
}

TEST(StoppedRecomputeTest, ReentrantCheckpointsAndOlderReleasesRunEverything) {
  EXPECT_EQ(layer_of(stopped_plan({{"overlap", "FSDP prefetch; mixed_precision=PURE"}})).recompute,
            Recompute::Full);
  EXPECT_EQ(
      layer_of(stopped_plan({{"overlap", "FSDP prefetch; mixed_precision=DEFAULT"}})).recompute,
      Recompute::Operators);
  EXPECT_EQ(layer_of(stopped_plan({{"framework", "Megatron-LM"}, {"zero_stage", "0"}})).recompute,
            Recompute::Full);
  EXPECT_EQ(layer_of(stopped_plan({{"recompute", "none"}})).recompute, Recompute::None);
}

}  // namespace
}  // namespace orrery::studies
