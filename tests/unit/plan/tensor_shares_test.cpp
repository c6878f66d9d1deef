// SPDX-License-Identifier: Apache-2.0
// Uneven tensor shards: the remainder rule, the errors, time and memory of each rank.
#include "plan/tensor_shares.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "plan/exporter.hpp"
#include "plan/simulation/layout_report.hpp"
#include "plan/simulation/simulate.hpp"
#include "plan/stages.hpp"
#include "tests/unit/plan/plan_fixture.hpp"

namespace orrery::plan {
namespace {

using models::Dim;
using models::Var;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::int64_t> divide(const std::vector<int>& shares, const Dim& dim) {
  std::vector<std::int64_t> extents;
  for (int rank = 0; rank < static_cast<int>(shares.size()); ++rank) {
    extents.push_back(share_extent(TensorShares(shares), rank, dim, dim.extent));
  }
  return extents;
}

TEST(TensorShares, LargestRemaindersFirstThenTheLowerRank) {
  EXPECT_THAT(divide({1, 1, 1, 1}, {Var::Head, 25}), ElementsAre(7, 6, 6, 6));
  EXPECT_THAT(divide({1, 1, 1, 1}, {Var::Head, 27}), ElementsAre(7, 7, 7, 6));
  // 25 in 7: 10.71, 10.71, 3.57 - two are left, for the first two.
  EXPECT_THAT(divide({3, 3, 1}, {Var::Head, 25}), ElementsAre(11, 11, 3));
  // 11 in 8: 1.375, 4.125, 5.5 - one is left.
  EXPECT_THAT(divide({1, 3, 4}, {Var::Head, 11}), ElementsAre(1, 4, 6));
}

TEST(TensorShares, UnitsStayTogether) {
  EXPECT_THAT(divide({3, 1}, {Var::Head, 32, 1.0, 4}), ElementsAre(24, 8));
  EXPECT_THAT(divide({2, 1}, {Var::Head, 32, 1.0, 4}), ElementsAre(20, 12));
  EXPECT_THAT(divide({2, 1}, {Var::KvHead, 8}), ElementsAre(5, 3));
  EXPECT_THAT(divide({2, 1}, {Var::Ffn, 80}), ElementsAre(56, 24));
  EXPECT_THAT(divide({2, 1}, {Var::Ffn, 81}), ElementsAre(54, 27));
  EXPECT_THAT(divide({1, 1}, {Var::Vocab, 50257}), ElementsAre(25129, 25128));
}

Plan uneven_plan(const std::vector<int>& shares, models::NetworkSpec spec = small_spec()) {
  spec.kv_heads = std::min<std::int64_t>(spec.kv_heads, spec.heads);
  Plan plan = small_plan(spec);
  plan.blocks.front().layout.tensor_shares = TensorShares(shares);
  return plan;
}

std::string problem(const std::vector<int>& shares,
                    const std::function<void(Plan&, BlockPlan&)>& change,
                    const models::NetworkSpec& spec = small_spec()) {
  Plan plan = uneven_plan(shares, spec);
  change(plan, plan.blocks.front().layout);
  try {
    check_plan(plan, "plan.json");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

const auto kNothing = [](Plan&, BlockPlan&) {};

TEST(TensorShares, ErrorsNameTensorAxisAndTheSmallestChange) {
  EXPECT_EQ(problem({3, 2, 2, 1}, kNothing), "");
  EXPECT_THAT(problem({3, 1}, kNothing),
              AllOf(HasSubstr("2 entries, but tp = 4"), HasSubstr("4, one")));
  EXPECT_THAT(problem({100, 100, 100, 1}, kNothing),
              AllOf(HasSubstr("block \"dense\""), HasSubstr("tensor \"w_q\""),
                    HasSubstr("dimension head = 16"), HasSubstr("axis tp"), HasSubstr("rank 3"),
                    HasSubstr("a share of")));
  models::NetworkSpec few = small_spec();
  few.kv_heads = 2;
  EXPECT_THAT(problem({1, 1, 1, 1}, kNothing, few), HasSubstr("at most tp = 2"));
  EXPECT_THAT(problem({3, 2, 2, 1},
                      [](Plan&, BlockPlan& layout) { layout.tensor_parallel = TensorMesh::TwoD; }),
              HasSubstr("tensor_parallel = 1d"));
  const auto ulysses = [](Plan& plan, BlockPlan& layout) {
    plan.dp = 1;
    layout.cp = 2;
    layout.context = ContextParallel::Ulysses;
  };
  EXPECT_EQ(problem({3, 2, 2, 1}, ulysses), "");
  EXPECT_THAT(problem({4, 5, 4, 3}, ulysses),
              AllOf(HasSubstr("tensor \"q\""), HasSubstr("rank 1 of axis tp holds 5"),
                    HasSubstr("not divisible by cp = 2")));
  EXPECT_THAT(problem({3, 2, 2, 1},
                      [](Plan& plan, BlockPlan& layout) {
                        plan.dp = 1;
                        layout.cp = 2;
                        layout.context = ContextParallel::AllGather;
                        layout.variables[static_cast<std::size_t>(Axis::Context)] =
                            VarList({Var::Ffn, Var::Seq});
                      }),
              HasSubstr("tensor_shares divide it along tp alone"));
  EXPECT_THAT(problem({3, 2, 2, 1},
                      [](Plan& plan, BlockPlan&) {
                        plan.schedule = "helixpipe";
                        plan.chunks = 4;
                        plan.stage_blocks = even_stages(plan.network, 8);
                      }),
              HasSubstr("tensor_shares with schedule helixpipe"));
  models::NetworkSpec short_vocab = small_spec();
  short_vocab.vocab = 64;
  EXPECT_THAT(
      problem(
          {30, 20, 20, 3}, [](Plan& plan, BlockPlan&) { plan.schedule = "vocab-1"; }, short_vocab),
      HasSubstr("nothing of the vocabulary 64 to rank 3"));
}

// The ranks of all stages hold the vocabulary in the shares of their stage's.
TEST(TensorShares, CutAnOutputLayerOfAllStages) {
  const auto with = [](const std::vector<int>& shares) {
    Plan plan = uneven_plan(shares);
    plan.schedule = "vocab-1";
    check_plan(plan, "plan.json");
    return simulate(plan);
  };
  Plan plain = uneven_plan({1, 1, 1, 1});
  plain.schedule = "vocab-1";
  plain.blocks.front().layout.tensor_shares = {};
  const Simulation without = simulate(plain);
  EXPECT_EQ(with({5, 5, 5, 5}).iteration_time, without.iteration_time);
  EXPECT_EQ(with({5, 5, 5, 5}).memory[0].total(), without.memory[0].total());
  EXPECT_GT(with({3, 2, 2, 1}).iteration_time, without.iteration_time);
  EXPECT_GT(with({3, 2, 2, 1}).memory[0].parameters, without.memory[0].parameters);
  EXPECT_EQ(TensorShares({3, 1}).repeated(2).list(), (std::vector<int>{3, 1, 3, 1}));
}

// Heads and widths that do not divide are refused until the user asks for uneven shards.
TEST(TensorShares, TakesHeadsThatDoNotDivide) {
  models::NetworkSpec spec = small_spec();
  spec.heads = spec.kv_heads = 25;
  spec.hidden = 25 * 64;
  spec.ffn_hidden = 4001;
  Plan plan = uneven_plan({1, 1, 1, 1}, spec);
  check_plan(plan, "plan.json");
  EXPECT_GT(simulate(plan).iteration_time.value(), 0);
  plan.blocks.front().layout.tensor_shares = {};
  EXPECT_THROW(check_plan(plan, "plan.json"), Error);
}

TEST(TensorShares, EqualSharesThatDivideAreThePlanWithout) {
  const Plan with = uneven_plan({5, 5, 5, 5});
  Plan without = with;
  without.blocks.front().layout.tensor_shares = {};
  const Simulation a = simulate(with);
  const Simulation b = simulate(without);
  EXPECT_EQ(a.iteration_time, b.iteration_time);
  ASSERT_EQ(a.memory.size(), b.memory.size());
  for (std::size_t stage = 0; stage < a.memory.size(); ++stage) {
    EXPECT_EQ(a.memory[stage].total(), b.memory[stage].total());
  }
}

// Time and memory grow with the largest share.
TEST(TensorShares, TheLargestShareCounts) {
  const Simulation even = simulate(uneven_plan({1, 1, 1, 1}));
  const Simulation uneven = simulate(uneven_plan({2, 2, 3, 1}));
  const Simulation worse = simulate(uneven_plan({1, 1, 5, 1}));
  EXPECT_LT(even.iteration_time, uneven.iteration_time);
  EXPECT_LT(uneven.iteration_time, worse.iteration_time);
  EXPECT_LT(even.memory[0].parameters, uneven.memory[0].parameters);
  EXPECT_LT(uneven.memory[0].parameters, worse.memory[0].parameters);
}

TEST(TensorShares, RanksHoldAllOfEveryWeight) {
  models::NetworkSpec spec = small_spec();
  spec.kv_heads = 8;
  const Plan plan = uneven_plan({3, 3, 1, 1}, spec);
  const BlockReport layer = report_layouts(plan).at(1);
  ASSERT_EQ(layer.shares.size(), 4U);
  EXPECT_EQ(layer.shares[0].holds, "head 6 of 16, kv-head 3 of 8, ffn 1536 of 4096");
  EXPECT_EQ(layer.shares[3].holds, "head 2 of 16, kv-head 1 of 8, ffn 512 of 4096");
  // Vectors (norms and biases after a sum) are on every rank, all else on one.
  Plan whole = plan;
  whole.blocks.front().layout = {};
  const BlockReport held_whole = report_layouts(whole).at(1);
  ByteCount all;
  for (const HeldTensor& tensor : held_whole.tensors) {
    all += tensor.kind == HeldKind::Weight ? tensor.bytes : ByteCount();
  }
  ByteCount held;
  for (const RankShare& rank : layer.shares) {
    held += rank.weights;
  }
  const ByteCount repeated = held - all;
  EXPECT_GT(repeated.value(), 0);
  EXPECT_LT(repeated.value(), 3 * 8 * 1024 * 2);  // two norms and two biases of 1024 at most
}

TEST(TensorShares, TravelInThePlan) {
  const Plan plan = uneven_plan({3, 2, 2, 1});
  const Plan back = read_plan(to_json(plan), "plan.json");
  EXPECT_EQ(back.blocks, plan.blocks);
  EXPECT_EQ(simulate(back).iteration_time, simulate(plan).iteration_time);
}

TEST(TensorShares, ExportersSayThatTheyCannot) {
  const Plan plan = uneven_plan({3, 2, 2, 1});
  for (const Exporter* exporter : exporter_table()) {
    EXPECT_THROW(export_plan(*exporter, plan), Error) << exporter->name;
  }
}

// A collective that streams beside a product takes no time on a rank whose product is long enough.
TEST(TensorShares, RanksHideDifferentPartsOfAStream) {
  models::NetworkSpec spec = small_spec();
  spec.sequence = 8192;
  Plan plan = uneven_plan({5, 1, 1, 1}, spec);
  plan.micro_batch = 4;
  plan.batch = 4 * plan.dp * plan.micro_batch;
  plan.blocks.front().layout.sequence_parallel = true;
  const Seconds in_line = simulate(plan).iteration_time;
  plan.execution.stream_tp = true;
  EXPECT_LT(simulate(plan).iteration_time, in_line);
}

}  // namespace
}  // namespace orrery::plan
