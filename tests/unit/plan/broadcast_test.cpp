// SPDX-License-Identifier: Apache-2.0
// Broadcasts of a mesh of rows and columns over binomial trees: the volumes of Optimus (Xu et al.,
// arXiv 2104.05343, table 1: log2(P) / (2 sqrt P) (7 b s h + 12 h^2) elements in a forward pass)
// and the rounds of a tree over nodes and inside them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.hpp"
#include "plan/block/layout_check.hpp"
#include "tests/unit/plan/plan_fixture.hpp"
#include "tests/unit/plan/volume_fixture.hpp"

namespace orrery::plan {
namespace {

BlockPlan square(int tp, Broadcasts broadcasts) {
  BlockPlan layout;
  layout.tp = tp;
  layout.tensor_parallel = TensorMesh::TwoD;
  layout.broadcasts = broadcasts;
  return layout;
}

TEST(Broadcasts, TreesSendWhatOptimusCounts) {
  constexpr double kTokens = 8 * 512;
  constexpr double kHidden = 4096;
  constexpr int kRanks = 64;
  Layer layer(gpt(4096, 64), square(kRanks, Broadcasts::Binomial), 1, 8 * 512LL, 1);
  double elements = 0;
  for (const Step& step : layer.steps().forward) {
    if (step.collective && step.comm != CommKind::AllReduce) {
      ASSERT_EQ(step.pieces, 8);
      elements += step.bytes.value() / 2 * std::log2(step.group.ranks);
    }
  }
  EXPECT_NEAR(elements,
              std::log2(kRanks) / (2 * std::sqrt(kRanks)) *
                  (7 * kTokens * kHidden + 12 * kHidden * kHidden),
              1e-6 * elements);
}

// SUMMA's broadcasts of four ranks of a node take two messages each where a ring streams one.
TEST(Broadcasts, TreesTakeARoundForEveryDoubling) {
  const auto gathers = [](int tp, Broadcasts broadcasts) {
    Layer layer(gpt(2048, 16), square(tp, broadcasts), 1, 2048, 1);
    layer.execution().overlap_tp = false;
    return layer.steps().forward;
  };
  const std::vector<Step> tree = gathers(16, Broadcasts::Binomial);
  const std::vector<Step> ring = gathers(16, Broadcasts::Pipelined);
  ASSERT_EQ(tree.size(), ring.size());
  double ratio = 0;
  for (std::size_t index = 0; index < tree.size(); ++index) {
    EXPECT_EQ(tree[index].bytes.value(), ring[index].bytes.value());
    if (tree[index].collective && tree[index].comm != CommKind::AllReduce) {
      EXPECT_GT(tree[index].time, ring[index].time);
      ratio = std::max(ratio, tree[index].time / ring[index].time);
    }
  }
  EXPECT_GT(ratio, 1.5);
}

TEST(Broadcasts, BelongToMeshesOfRowsAndColumns) {
  BlockPlan layout;
  layout.tp = 8;
  layout.broadcasts = Broadcasts::Binomial;
  try {
    check_tensor_mesh(layout, "plan.json");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("belongs to tensor_parallel 2d or 2.5d"));
  }
  layout.tensor_parallel = TensorMesh::ThreeD;
  EXPECT_THROW(check_tensor_mesh(layout, "plan.json"), Error);
  layout.tensor_parallel = TensorMesh::TwoAndHalfD;
  layout.tp_depth = 2;
  check_tensor_mesh(layout, "plan.json");
}

TEST(Broadcasts, PlansKeepThem) {
  Plan plan = small_plan();
  plan.micro_batch = 4;
  plan.blocks.front().layout = square(4, Broadcasts::Binomial);
  const Plan again = read_plan(to_json(plan), "again");
  EXPECT_EQ(again.blocks, plan.blocks);
}

}  // namespace
}  // namespace orrery::plan
