// SPDX-License-Identifier: Apache-2.0
// Layouts that do not exist are refused in one message that names the tensor, the axis and the
// remainder; only the vocabulary and the tokens of an encoder may be uneven.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "tests/unit/plan/plan_fixture.hpp"

namespace orrery::plan {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string problem(const models::NetworkSpec& spec,
                    const std::function<void(Plan&, BlockPlan&)>& change) {
  Plan plan = small_plan(spec);
  change(plan, plan.blocks.front().layout);
  try {
    check_plan(plan, "plan.json");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

auto names(const std::string& axis, const std::string& tensor, int remainder) {
  return AllOf(HasSubstr(axis), HasSubstr("tensor"), HasSubstr(tensor),
               HasSubstr("remainder " + std::to_string(remainder)));
}

TEST(UnevenShards, HeadsAndWidths) {
  models::NetworkSpec spec = small_spec();
  spec.heads = spec.kv_heads = 18;
  spec.hidden = 18 * 64;
  EXPECT_THAT(problem(spec, [](Plan&, BlockPlan&) {}), names("axis tp", "\"q\"", 2));
  spec = small_spec();
  spec.heads = 24;
  spec.kv_heads = 6;
  spec.hidden = 24 * 64;
  EXPECT_THAT(problem(spec, [](Plan&, BlockPlan&) {}),
              AllOf(names("axis tp", "\"k\" and \"v\"", 2), HasSubstr("multiple of kv_heads")));
  spec = small_spec();
  spec.ffn_hidden = 4095;
  EXPECT_THAT(problem(spec, [](Plan&, BlockPlan&) {}), names("axis tp", "\"up\"", 3));
  spec = small_spec();
  spec.vocab = 51201;
  EXPECT_EQ(problem(spec, [](Plan&, BlockPlan&) {}), "");
}

TEST(UnevenShards, Tokens) {
  const models::NetworkSpec spec = small_spec();
  EXPECT_THAT(problem(spec,
                      [](Plan& plan, BlockPlan& layout) {
                        plan.sequence = 2046;
                        layout.sequence_parallel = true;
                      }),
              names("axis tp with cp", "\"hidden\"", 2));
  EXPECT_THAT(problem(spec,
                      [](Plan& plan, BlockPlan& layout) {
                        plan.sequence = 2046;
                        plan.dp = 1;
                        layout.cp = 2;
                      }),
              names("axis cp, two chunks a rank,", "\"hidden\"", 2));
  EXPECT_THAT(problem(spec,
                      [](Plan& plan, BlockPlan& layout) {
                        plan.sequence = 2047;
                        plan.dp = 1;
                        layout.cp = 2;
                        layout.context = ContextParallel::AllGather;
                        layout.zigzag = false;
                      }),
              names("axis cp cuts", "\"hidden\"", 1));
}

TEST(UnevenShards, HeadsOfUlyssesAndExperts) {
  models::NetworkSpec spec = small_spec();
  spec.heads = spec.kv_heads = 12;
  spec.hidden = 12 * 64;
  spec.ffn_hidden = 4 * spec.hidden;
  EXPECT_THAT(problem(spec,
                      [](Plan& plan, BlockPlan& layout) {
                        plan.dp = 1;
                        layout.cp = 2;
                        layout.context = ContextParallel::Ulysses;
                      }),
              names("axis cp with tp", "\"q\"", 4));
  spec = small_spec();
  spec.heads = 40;
  spec.kv_heads = 20;  // 20 over tp = 4, but not over 8 ranks
  spec.hidden = 40 * 64;
  const auto ulysses = [](Plan& plan, BlockPlan& layout) {
    plan.dp = 1;
    layout.cp = 2;
    layout.context = ContextParallel::Ulysses;
  };
  EXPECT_THAT(problem(spec, ulysses), AllOf(names("axis cp with tp", "\"k\" and \"v\"", 4),
                                            HasSubstr("multiple of kv_heads")));
  spec.kv_heads = 4;  // each on two ranks
  EXPECT_EQ(problem(spec, ulysses), "");
  spec = small_spec();
  spec.moe = {.experts = 9, .top_k = 2, .ffn_hidden = 1024};
  EXPECT_THAT(problem(spec, [](Plan&, BlockPlan& layout) { layout.ep = 2; }),
              names("axis ep", "\"w_expert_up\"", 1));
}

TEST(UnevenShards, MoreRanksThanADimensionHas) {
  EXPECT_THAT(problem(small_spec(),
                      [](Plan&, BlockPlan& layout) {
                        layout.tensor_parallel = TensorMesh::TwoD;
                        layout.tp_rows = 4;
                      }),
              AllOf(HasSubstr("block \"embedding\""), HasSubstr("dimension batch = 2"),
                    HasSubstr("tp-row = 4"), HasSubstr("more than its size")));
}

}  // namespace
}  // namespace orrery::plan
