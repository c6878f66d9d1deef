// SPDX-License-Identifier: Apache-2.0
// Messages between pipeline devices: over which links, and in how many parts.
#include "plan/stage/transfers.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "plan/document/idle_fields.hpp"
#include "tests/unit/plan/plan_fixture.hpp"

namespace orrery::plan {
namespace {

Plan with_stage_ranks(int tp, int dp, int pp, int nodes) {
  Plan plan = small_plan(small_spec(), "dgx-a100:" + std::to_string(nodes));
  plan.dp = dp;
  plan.pp = pp;
  plan.blocks.front().layout.tp = tp;
  return plan;
}

SimTime message(const Plan& plan, int from, int to) {
  const BlockCosts costs(plan);
  return TransferTimes(costs).of(plan, ByteCount(1 << 24), 1, from, to);
}

// Of six ranks a stage on nodes of eight: two of the first stage send across, as four of the second
// do, and all wait for them.
TEST(TransferTimes, AreOfTheRanksFarthestApart) {
  const Plan plan = with_stage_ranks(2, 3, 4, 3);
  const Plan whole = with_stage_ranks(8, 1, 3, 3);  // a stage is a node
  EXPECT_EQ(message(plan, 0, 1), message(whole, 0, 1));
  EXPECT_EQ(message(plan, 1, 2), message(whole, 0, 1));
  EXPECT_EQ(message(plan, 3, 2), message(whole, 0, 1));
  EXPECT_LT(message(with_stage_ranks(1, 1, 8, 3), 0, 1), message(whole, 0, 1));
}

TEST(TransferTimes, AreThoseOfTheLargestDistanceInNodes) {
  const Plan whole = with_stage_ranks(8, 1, 4, 4);
  for (const int ranks : {1, 2, 3, 4, 5, 6, 7, 8, 12, 16}) {
    const int devices = 32 / ranks;
    const Plan plan = with_stage_ranks(1, ranks, devices, 4);
    for (int from = 0; from < devices; ++from) {
      for (int to = from + 1; to < devices; ++to) {
        int apart = 0;
        for (int rank = 0; rank < ranks; ++rank) {
          apart = std::max(apart, std::abs((ranks * from + rank) / 8 - (ranks * to + rank) / 8));
        }
        if (apart > 0) {
          EXPECT_EQ(message(plan, from, to), message(whole, 0, apart))
              << ranks << " ranks, " << from << " to " << to;
        } else {
          EXPECT_LT(message(plan, from, to), message(whole, 0, 1));
        }
      }
    }
  }
}

bool splitting_is_idle(const BlockPlan& layout) {
  Plan plan = with_stage_ranks(1, 2, 2, 2);
  plan.blocks.front().layout = layout;
  plan.execution.split_transfers = true;
  return idle_text(idle_fields(plan)).find("split_transfers") != std::string::npos;
}

// Where tensor ranks cut the stream each has a part of its own, whatever cuts it.
TEST(PartsSent, AreOfBoundariesThatAllTensorRanksHold) {
  Plan plan = small_plan();
  BlockPlan layout{.tp = 4};
  EXPECT_EQ(parts_sent(plan, layout), 1);
  plan.execution.split_transfers = true;
  EXPECT_EQ(parts_sent(plan, layout), 4);
  EXPECT_FALSE(splitting_is_idle(layout));
  BlockPlan sequence = layout;
  sequence.sequence_parallel = true;
  BlockPlan square = layout;
  square.tensor_parallel = TensorMesh::TwoD;
  BlockPlan stated = layout;
  stated.variables[0] = VarList({Var::Head, Var::Ffn, Var::Vocab, Var::Seq});
  for (const BlockPlan& cut : {sequence, square, stated, BlockPlan()}) {
    EXPECT_EQ(parts_sent(plan, cut), 1);
    EXPECT_TRUE(splitting_is_idle(cut));
  }
}

}  // namespace
}  // namespace orrery::plan
