// SPDX-License-Identifier: Apache-2.0
// Experts that some of the tensor-parallel ranks cut and the others share (parallel folding): the
// collectives of a layer by hand, other blocks as if nothing were folded, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "tests/unit/plan/plan_fixture.hpp"
#include "tests/unit/plan/volume_fixture.hpp"

namespace orrery::plan {
namespace {

using testing::HasSubstr;

BlockPlan half_folded(int ep = 2) {
  BlockPlan layout;
  layout.tp = 4;
  layout.sequence_parallel = true;
  layout.ep = ep;
  layout.expert_tp = 2;
  return layout;
}

struct Sent {
  CommKind kind;
  int ranks;
  int stride;
  std::int64_t bytes;
  bool operator==(const Sent&) const = default;
};

void PrintTo(const Sent& sent, std::ostream* out) {
  *out << to_text(sent.kind) << " of " << sent.ranks << " ranks " << sent.stride << " apart, "
       << sent.bytes << " bytes";
}

std::vector<Sent> sent_by(const std::vector<Step>& steps) {
  std::vector<Sent> list;
  for (const Step& step : steps) {
    if (step.collective) {
      list.push_back({step.comm, step.group.ranks, step.group.gpu_stride,
                      static_cast<std::int64_t>(step.bytes.value())});
    }
  }
  return list;
}

// 4,096 tokens of 1,024 elements of 2 bytes, 8 MiB, a quarter on each rank; two copies of its
// tokens leave a rank, and those that two ranks cut an expert for are gathered from both.
TEST(FoldedExperts, ExchangeAndGatherOverTheirOwnRanks) {
  constexpr std::int64_t kMiB = 1 << 20;
  const Layer layer(mixture(8, 2), half_folded(), 1, 1, 4096);
  const std::vector<Sent> forward = {
      {CommKind::AllGather, 4, 1, 8 * kMiB},     {CommKind::ReduceScatter, 4, 1, 8 * kMiB},
      {CommKind::AllToAll, 2, 2, 4 * kMiB},      {CommKind::AllGather, 2, 1, 8 * kMiB},
      {CommKind::ReduceScatter, 2, 1, 8 * kMiB}, {CommKind::AllToAll, 2, 2, 4 * kMiB}};
  EXPECT_EQ(sent_by(layer.steps().forward), forward);
}

// Nothing of a block without experts changes but the names of the axes.
TEST(FoldedExperts, LeaveOtherBlocksAsTheyAre) {
  models::NetworkSpec spec = small_spec();
  spec.moe = {.experts = 8, .top_k = 2, .ffn_hidden = 1024, .first_dense_layers = 1};
  Plan plan = small_plan(spec);
  BlockPlan whole = half_folded();
  whole.expert_tp = 0;
  BlockCosts costs(plan);
  for (const int block :
       {plan.network.chain.front(), plan.network.chain[1], plan.network.chain.back()}) {
    ASSERT_EQ(plan.network.blocks[static_cast<std::size_t>(block)].experts, 0);
    const BlockCost& folded = costs.of(block, half_folded(), 1);
    const BlockCost& plain = costs.of(block, whole, 1);
    EXPECT_EQ(folded.forward.time, plain.forward.time);
    EXPECT_EQ(folded.backward.time, plain.backward.time);
    EXPECT_EQ(folded.saved.value(), plain.saved.value());
    const auto bytes = [&](const BlockCost& cost, const BlockPlan& layout) {
      double sum = 0;
      for (const StateCollective& one :
           state_collectives(cost, layout, mesh_of(layout, 2), plan.execution, plan.precision,
                             false, plan.cluster.node.gpus)) {
        sum += one.bytes * one.group(mesh_of(layout, 2), plan.cluster.node.gpus).ranks;
      }
      return sum;
    };
    EXPECT_EQ(bytes(folded, half_folded()), bytes(plain, whole));
  }
}

class FoldedPlan : public testing::Test {
 protected:
  FoldedPlan() { spec_.moe = {.experts = 8, .top_k = 2, .ffn_hidden = 1026}; }
  std::string said(int ep, int expert_tp, const std::function<void(Plan&)>& change = {}) {
    Plan plan = small_plan(spec_);  // tp = 4, dp = 2
    BlockPlan& layout = plan.blocks.front().layout;
    layout.ep = ep;
    layout.expert_tp = expert_tp;
    if (change) {
      change(plan);
    }
    try {
      check_plan(plan, "p");
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  }
  models::NetworkSpec spec_ = small_spec();
};

TEST_F(FoldedPlan, TakesEveryDivisor) {
  EXPECT_EQ(said(2, 2), "");
  EXPECT_EQ(said(4, 2), "");
  EXPECT_EQ(said(4, 1), "");
}

TEST_F(FoldedPlan, SaysWhatDoesNotDivide) {
  EXPECT_THAT(said(2, 3), HasSubstr("expert_tp is 3; it must be 0 (as tp) or a divisor of tp = 4"));
  EXPECT_THAT(said(1, 2), HasSubstr("experts are spread over tp / expert_tp = 2 ranks first"));
  EXPECT_THAT(said(8, 2),
              HasSubstr("dp x tp / expert_tp = 4 is not divisible by ep = 8 (expert_tp = "
                        "1 spreads experts over all ranks of tp)"));
  spec_.moe.experts = 16;
  EXPECT_THAT(said(16, 1), HasSubstr("dp x tp = 8 is not divisible by ep = 16 (a divisor of 8)"));
  EXPECT_THAT(said(2, 0), HasSubstr("moe.ffn_hidden = 1026 is not divisible by tp = 4"));
  spec_.moe.ffn_hidden = 1025;
  EXPECT_THAT(said(2, 2), testing::AllOf(HasSubstr("not divisible by expert_tp = 2"),
                                         HasSubstr("\"w_expert_up\""), HasSubstr("remainder 1")));
}

TEST_F(FoldedPlan, RefusesSharesAndMeshes) {
  EXPECT_THAT(
      said(2, 2,
           [](Plan& plan) {
             plan.blocks.front().layout.tensor_shares = TensorShares(std::vector<int>{2, 1, 1, 1});
           }),
      HasSubstr("expert_tp = 2 with tensor_shares"));
  EXPECT_THAT(said(2, 2,
                   [](Plan& plan) {
                     plan.blocks.front().layout.tensor_parallel = TensorMesh::TwoD;
                     plan.blocks.front().layout.sequence_parallel = false;
                   }),
              HasSubstr("expert_tp = 2 spreads experts over a row of ranks, not over a 2d mesh"));
}

}  // namespace
}  // namespace orrery::plan
