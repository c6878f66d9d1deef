// SPDX-License-Identifier: Apache-2.0
// Experts that some of the tensor-parallel ranks cut and the others share (parallel folding): the
// collectives of a layer by hand, other blocks as if nothing were folded, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "plan/exporter.hpp"
#include "plan/importer.hpp"
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

// Tokens of a ring of 4 go to experts on 2 neighbours, the others have copies: the exchange is as
// long as over 2 ranks of their own, and keys and values ride round all 4.
TEST(FoldedExperts, OnAPartOfTheContextRanksHaveCopiesOnTheOthers) {
  constexpr std::int64_t kMiB = 1 << 20;
  BlockPlan layout;
  layout.cp = 4;
  layout.ep = 2;
  layout.expert_cp = 1;
  const Layer layer(mixture(8, 2), layout, 1, 1, 4096);
  std::vector<Sent> exchanges;
  for (const Step& step : layer.steps().forward) {
    if (step.collective && step.axis == Axis::Context) {
      EXPECT_EQ(step.group.ranks, 4);
    } else if (step.collective) {
      exchanges.push_back({step.comm, step.group.ranks, step.group.gpu_stride,
                           static_cast<std::int64_t>(step.bytes.value())});
    }
  }
  const std::vector<Sent> expected(2, {CommKind::AllToAll, 2, 1, 4 * kMiB});
  EXPECT_EQ(exchanges, expected);
}

// 8 experts on 2 of 4 tensor-parallel ranks: each rank has 4 whole ones for a quarter of the
// tokens, and no gather or reduction of them.
TEST(FoldedExperts, OnAPartOfTheTensorRanksHaveCopiesOnTheOthers) {
  constexpr std::int64_t kMiB = 1 << 20;
  BlockPlan layout = half_folded(2);
  layout.expert_tp = 1;
  const Layer layer(mixture(8, 2), layout, 1, 1, 4096);
  const std::vector<Sent> forward = {{CommKind::AllGather, 4, 1, 8 * kMiB},
                                     {CommKind::ReduceScatter, 4, 1, 8 * kMiB},
                                     {CommKind::AllToAll, 2, 1, 4 * kMiB},
                                     {CommKind::AllToAll, 2, 1, 4 * kMiB}};
  EXPECT_EQ(sent_by(layer.steps().forward), forward);
}

// Of 8 ranks 2 cut an expert, 2 pairs have different ones, and the other 4 copies of them.
TEST(FoldedExperts, AreCutSpreadAndCopiedOnThreeAxes) {
  constexpr std::int64_t kMiB = 1 << 20;
  BlockPlan layout = half_folded(2);
  layout.tp = 8;
  const Layer layer(mixture(8, 2), layout, 1, 1, 4096);
  const std::vector<Sent> forward = {
      {CommKind::AllGather, 8, 1, 8 * kMiB},     {CommKind::ReduceScatter, 8, 1, 8 * kMiB},
      {CommKind::AllToAll, 2, 2, 2 * kMiB},      {CommKind::AllGather, 2, 1, 4 * kMiB},
      {CommKind::ReduceScatter, 2, 1, 4 * kMiB}, {CommKind::AllToAll, 2, 2, 2 * kMiB}};
  EXPECT_EQ(sent_by(layer.steps().forward), forward);
}

// Ranks with copies of experts share their states as Megatron-Core's expert data-parallel group
// does: of tp 4 (whole experts), ep 2 and dp 2 that are 2 x 2 ranks.
TEST(FoldedExperts, ShareStatesWithTheirCopies) {
  const models::Network network = mixture(8, 2);
  const models::Block& block = network.blocks[static_cast<std::size_t>(network.chain[1])];
  BlockPlan layout = half_folded(2);
  layout.expert_tp = 1;
  layout.zero_stage = 1;
  const Mesh mesh = mesh_of(layout, 2);
  std::int64_t experts = 0;
  for (const StateGroup& group : state_groups(block, rules_of(layout, true), mesh)) {
    if (group.copied[static_cast<std::size_t>(Axis::TensorRow)]) {
      experts += group.elements;
      EXPECT_EQ(num_shards(group, mesh), 4);
      BlockCost cost;
      cost.states = {group};
      for (const StateCollective& one :
           state_collectives(cost, layout, mesh, {}, DType::Bf16, false, 8)) {
        EXPECT_EQ(one.group(mesh, 8).ranks, 4);
      }
    } else {
      EXPECT_EQ(num_shards(group, mesh), 2);
    }
  }
  EXPECT_EQ(experts, 8LL / 2 * 3 * 1024 * 2048);
}

// Nothing of a block without experts changes but the names of the axes.
TEST(FoldedExperts, LeaveOtherBlocksAsTheyAre) {
  models::NetworkSpec spec = small_spec();
  spec.kv_heads = 4;
  spec.moe = {.experts = 8, .top_k = 2, .ffn_hidden = 1024, .first_dense_layers = 1};
  Plan plan = small_plan(spec);
  BlockCosts costs(plan);
  const auto bytes = [&](const BlockCost& cost, const BlockPlan& layout) {
    double sum = 0;
    for (const StateCollective& one :
         state_collectives(cost, layout, mesh_of(layout, 2), plan.execution, plan.precision, false,
                           plan.cluster.node.gpus)) {
      sum += one.bytes * one.group(mesh_of(layout, 2), plan.cluster.node.gpus).ranks;
    }
    return sum;
  };
  BlockPlan copied = half_folded();
  copied.expert_tp = 1;
  BlockPlan on_three_axes = half_folded();
  on_three_axes.tp = 8;
  BlockPlan in_ring;
  in_ring.cp = 4;
  in_ring.ep = 2;
  in_ring.expert_cp = 1;
  for (const BlockPlan& split : {half_folded(), copied, on_three_axes, in_ring}) {
    ASSERT_TRUE(splits_ranks(split));
    BlockPlan whole = split;
    whole.expert_tp = whole.expert_cp = 0;
    for (const int block :
         {plan.network.chain.front(), plan.network.chain[1], plan.network.chain.back()}) {
      ASSERT_EQ(plan.network.blocks[static_cast<std::size_t>(block)].experts, 0);
      const BlockCost& folded = costs.of(block, split, 1);
      const BlockCost& plain = costs.of(block, whole, 1);
      EXPECT_EQ(folded.forward.time, plain.forward.time);
      EXPECT_EQ(folded.backward.time, plain.backward.time);
      EXPECT_EQ(folded.saved.value(), plain.saved.value());
      EXPECT_EQ(bytes(folded, split), bytes(plain, whole));
    }
  }
}

// Megatron-LM's expert-parallel ranks may be fewer than those of a replica, and come back from a
// plan so.
TEST(FoldedExperts, AreReadFromArgumentsAndWrittenToThem) {
  const topologies::Cluster cluster = topologies::load_cluster("dgx-a100:2");
  const auto import = [&](const std::string& text, const models::Network* network = nullptr) {
    return find_importer("megatron").read(text, "run.sh", cluster, network);
  };
  const std::string shape =
      "--num-layers 8 --hidden-size 1024 --num-attention-heads 16 --seq-length 2048 --bf16 "
      "--micro-batch-size 1 --global-batch-size 64 --vocab-size 50000 --num-experts 8 --swiglu ";
  const Plan ring = import(shape + "--expert-model-parallel-size 8 --context-parallel-size 16");
  EXPECT_EQ(context_experts(ring.layout_of(0)).copies, 2);
  const Plan tensor = import(shape +
                             "--tensor-model-parallel-size 8 --expert-tensor-parallel-size 1 "
                             "--sequence-parallel --expert-model-parallel-size 2");
  EXPECT_EQ(tensor_experts(tensor.layout_of(0)).copies, 4);
  for (const Plan& plan : {ring, tensor}) {
    const std::string text = find_exporter("megatron").write(plan);
    EXPECT_EQ(import(text, &plan.network).layout_of(0), plan.layout_of(0));
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

TEST_F(FoldedPlan, TakesEveryPart) {
  EXPECT_EQ(said(2, 1), "");
  EXPECT_EQ(said(1, 2), "");
  EXPECT_EQ(said(1, 1), "");
  for (const ContextParallel kind :
       {ContextParallel::Ring, ContextParallel::AllGather, ContextParallel::Ulysses}) {
    EXPECT_EQ(said(2, 0,
                   [&](Plan& plan) {
                     BlockPlan& layout = plan.blocks.front().layout;
                     layout.tp = 1;
                     layout.cp = 4;
                     layout.context = kind;
                     layout.expert_cp = 1;
                     layout.sequence_parallel = false;
                   }),
              "");
  }
}

TEST_F(FoldedPlan, SaysWhatDoesNotDivide) {
  EXPECT_THAT(said(2, 3), HasSubstr("expert_tp is 3; it must be 0 (as tp) or a divisor of tp = 4"));
  spec_.moe.experts = 12;
  EXPECT_THAT(said(3, 1), HasSubstr("ep = 3, but experts are spread over tp = 4 ranks first (a "
                                    "divisor or a multiple of 4, or expert_tp = 0)"));
  const auto ring = [](Plan& plan) {  // of 4 ranks, whose experts are on 3 of them
    plan.blocks.front().layout.tp = 1;
    plan.blocks.front().layout.cp = 4;
    plan.blocks.front().layout.expert_cp = 1;
  };
  EXPECT_THAT(said(3, 0, ring),
              HasSubstr("ep = 3, but experts are spread over cp = 4 ranks first (ep / 1, here 3: a "
                        "divisor or a multiple of cp = 4, or expert_cp = 0)"));
  const auto mix = [](Plan& plan) {
    plan.blocks.front().layout = {};
    plan.blocks.front().layout.cp = 8;
    plan.blocks.front().layout.expert_cp = 1;
    plan.blocks.front().layout.ep = 2;
    plan.blocks.front().layout.context = ContextParallel::Mix;
    plan.blocks.front().layout.ulysses_degree = 4;
    plan.dp = 1;
  };
  EXPECT_THAT(said(2, 0, mix), HasSubstr("ep / 1, here 2: ulysses_degree = 4 or a multiple of cp "
                                         "= 8, or expert_cp = 0"));
  spec_.moe.experts = 8;
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

TEST_F(FoldedPlan, RefusesAnAxisOfExpertsThatIsToldOthers) {
  const auto told = [](const std::vector<Var>& vars) {
    return [vars](Plan& plan) {
      plan.blocks.front().layout.variables[static_cast<std::size_t>(Axis::Tensor)] = VarList(vars);
    };
  };
  EXPECT_THAT(said(4, 1, told({Var::Head, Var::Ffn})),
              HasSubstr("`variables` of axis tp do not begin with expert, but ep = 4 spreads "
                        "experts over its 4 ranks"));
  EXPECT_EQ(said(4, 1, told({Var::Expert, Var::Head, Var::Ffn})), "");
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
