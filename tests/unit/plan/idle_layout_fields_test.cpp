// SPDX-License-Identifier: Apache-2.0
// Choices of a block's layout that change nothing where its axes have one rank, or equal links.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "plan/document/idle_fields.hpp"
#include "plan/layout.hpp"
#include "plan/simulation/simulate.hpp"
#include "tests/unit/plan/plan_fields_fixture.hpp"

namespace orrery::plan {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(IdleLayoutFields, TheInnerAxisOfAMeshIsIdleInsideANode) {
  BlockPlan layout{.tp = 4, .tensor_parallel = TensorMesh::TwoD, .tp_inner = TensorAxis::Rows};
  EXPECT_EQ(idle_fields_text(plan_of(tiny_spec(), "ac922:4", 1, layout)),
            "blocks.tp_inner (needs a tensor mesh over several nodes, or sockets without links of "
            "their own)");
  layout.tp = 16;
  Plan wide = plan_of(tiny_spec(), "ac922:4", 1, layout);
  wide.precision = DType::Fp16;
  wide.micro_batch = 4;
  wide.batch = 16;
  EXPECT_EQ(idle_fields_text(wide), "");
  const Seconds rows = simulate(wide).iteration_time;
  wide.blocks.front().layout.tp_inner = TensorAxis::Columns;
  EXPECT_NE(simulate(wide).iteration_time, rows);
}

TEST(IdleLayoutFields, ThePlaceOfExpertRanksIsIdleInsideANode) {
  Plan plan = expert_plan();
  plan.blocks.front().layout = {.tp = 2, .ep = 2, .ep_inside = ExpertsInside::Tensor};
  EXPECT_THAT(idle_fields_text(plan), HasSubstr("blocks.ep_inside (needs experts over several"));
  plan.cluster.node.gpus = 2;
  plan.cluster.num_nodes = plan.num_gpus() / 2;
  EXPECT_THAT(idle_fields_text(plan), Not(HasSubstr("ep_inside")));
  plan.blocks.front().layout.ep_inside = ExpertsInside::Context;  // without context ranks
  EXPECT_THAT(idle_fields_text(plan), HasSubstr("blocks.ep_inside"));
}

TEST(IdleLayoutFields, VariablesOfOneRankAreIdle) {
  Plan plan = plan_of(tiny_spec(), "dgx-a100:2", 2, {.tp = 2});
  BlockPlan& layout = plan.blocks.front().layout;
  layout.variables[static_cast<std::size_t>(Axis::Context)] = VarList({Var::Seq});
  EXPECT_EQ(idle_fields_text(plan), "blocks.variables.cp (needs several ranks on axis cp)");
  layout.variables[static_cast<std::size_t>(Axis::Context)] = {};
  layout.variables[static_cast<std::size_t>(Axis::Tensor)] = VarList({Var::Batch});
  EXPECT_EQ(idle_fields_text(plan), "");
}

TEST(IdleLayoutFields, VariablesThatNoOperatorHasAreRefused) {
  Plan plan = plan_of(tiny_spec(), "dgx-a100:2", 2, {.tp = 2});
  plan.blocks.front().layout.variables[static_cast<std::size_t>(Axis::Tensor)] =
      VarList({Var::Expert, Var::Batch});
  try {
    check_plan(plan, "plan.json");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("`variables` of axis tp: no operator of small has the variable expert"));
  }
}

}  // namespace
}  // namespace orrery::plan
