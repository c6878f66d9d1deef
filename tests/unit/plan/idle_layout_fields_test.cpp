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
  EXPECT_EQ(idle_text(idle_fields(plan_of(tiny_spec(), "ac922:4", 1, layout))),
            "blocks.tp_inner (needs a tensor mesh over several nodes, or sockets without links of "
            "their own)");
  layout.tp = 16;
  Plan wide = plan_of(tiny_spec(), "ac922:4", 1, layout);
  wide.precision = DType::Fp16;
  wide.micro_batch = 4;
  wide.batch = 16;
  EXPECT_EQ(idle_text(idle_fields(wide)), "");
  const Seconds rows = simulate(wide).iteration_time;
  wide.blocks.front().layout.tp_inner = TensorAxis::Columns;
  EXPECT_NE(simulate(wide).iteration_time, rows);
}

TEST(IdleLayoutFields, ThePlaceOfExpertRanksIsIdleInsideANode) {
  Plan plan = expert_plan();
  plan.blocks.front().layout = {.tp = 2, .ep = 2, .ep_inside = ExpertsInside::Tensor};
  EXPECT_THAT(idle_text(idle_fields(plan)),
              HasSubstr("blocks.ep_inside (needs experts over several"));
  plan.cluster.node.gpus = 2;
  plan.cluster.num_nodes = plan.num_gpus() / 2;
  EXPECT_THAT(idle_text(idle_fields(plan)), Not(HasSubstr("ep_inside")));
  plan.blocks.front().layout.ep_inside = ExpertsInside::Context;  // without context ranks
  EXPECT_THAT(idle_text(idle_fields(plan)), HasSubstr("blocks.ep_inside"));
}

TEST(IdleLayoutFields, VariablesOfOneRankAreIdle) {
  Plan plan = plan_of(tiny_spec(), "dgx-a100:2", 2, {.tp = 2});
  BlockPlan& layout = plan.blocks.front().layout;
  layout.variables[static_cast<std::size_t>(Axis::Context)] = VarList({Var::Seq});
  EXPECT_EQ(idle_text(idle_fields(plan)), "blocks.variables.cp (needs several ranks on axis cp)");
  layout.variables[static_cast<std::size_t>(Axis::Context)] = {};
  layout.variables[static_cast<std::size_t>(Axis::Tensor)] = VarList({Var::Batch});
  EXPECT_EQ(idle_text(idle_fields(plan)), "");
}

// A dense network routes nothing; one of learned positions turns none.
TEST(IdleLayoutFields, GroupsThatNoOperatorIsInAreIdle) {
  Plan plan = plan_of(tiny_spec(), "dgx-a100:2", 2, {.tp = 2});
  BlockPlan& layout = plan.blocks.front().layout;
  layout.recompute = Recompute::Operators;
  layout.recomputed.add(OperatorGroup::Norms);
  layout.recomputed.add(OperatorGroup::AttentionCore);
  EXPECT_EQ(idle_text(idle_fields(plan)), "");
  layout.recomputed.add(OperatorGroup::Rotary);
  EXPECT_EQ(idle_text(idle_fields(plan)),
            "blocks.recompute of rotary (needs a network with such operators)");
  layout.recompute = Recompute::None;
  layout.offload.activations = 0.5;
  layout.offload.activations_of.add(OperatorGroup::MlpUp);
  layout.offload.activations_of.add(OperatorGroup::Routing);
  EXPECT_THAT(idle_text(idle_fields(plan)), HasSubstr("blocks.offload.activations_of of routing"));
}

// What a field does on a mesh, for fetched parameters and to norms that tensor ranks share.
TEST(IdleLayoutFields, FieldsThatChangeSomethingAreNotIdle) {
  const auto idle = [](Plan plan, auto&& edit) {
    edit(plan);
    return idle_text(idle_fields(plan));
  };
  Plan mesh = plan_of(tiny_spec(), "ac922:4", 1, {.tp = 4, .tensor_parallel = TensorMesh::TwoD});
  mesh.precision = DType::Fp16;
  EXPECT_EQ(idle(mesh, [](Plan& plan) { plan.execution.stream_tp = true; }), "");
  const Plan norms = plan_of(tiny_spec(), "dgx-a100:1", 2, {.tp = 4, .sequence_parallel = true});
  EXPECT_EQ(idle(norms, [](Plan& plan) { plan.execution.bucket_bytes = 1 << 20; }), "");
  EXPECT_EQ(idle(offloaded_plan(),
                 [](Plan& plan) {
                   plan.blocks.front().layout.zero_stage = 0;
                   plan.execution.reshard_after_forward = false;
                 }),
            "");
  const Plan ring = plan_of(tiny_spec(), "dgx-a100:2", 1, {.cp = 4});
  EXPECT_THAT(idle(ring, [](Plan& plan) { plan.execution.overlap_tp = false; }),
              HasSubstr("execution.overlap_tp"));
  EXPECT_THAT(idle(ring,
                   [](Plan& plan) {
                     plan.execution.fused_attention = false;
                     plan.execution.flash_version = 2;
                   }),
              HasSubstr("execution.flash_version (needs fused_attention)"));
}

TEST(IdleLayoutFields, VariablesThatNoOperatorHasAreRefused) {
  const auto expect_refusal = [](const std::vector<Var>& vars, const char* words) {
    Plan plan = plan_of(tiny_spec(), "dgx-a100:2", 2, {.tp = 2});
    plan.blocks.front().layout.variables[static_cast<std::size_t>(Axis::Tensor)] = VarList(vars);
    try {
      check_plan(plan, "plan.json");
      FAIL() << words;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(words));
    }
  };
  expect_refusal({Var::Expert, Var::Batch},
                 "`variables` of axis tp: no operator of small has the variable expert");
  // Attention has it, whose passes are not timed that way.
  expect_refusal({Var::KeySeq, Var::Seq},
                 "`variables` of axis tp: kernels of passes are not timed with parts of the keys");
}

Plan adapted_plan() {
  models::NetworkSpec spec = llama_spec();
  spec.adapters.rank = 16;
  return plan_of(spec, "hgx-h100:1", 1, {.tp = 2});
}

// What choices do beside data ranks: to norms that tensor ranks share, to adapters, on the host.
TEST(IdleLayoutFields, RulesNameNothingThatChangesThePlan) {
  const Plan norms = plan_of(tiny_spec(), "dgx-a100:1", 2, {.tp = 4, .sequence_parallel = true});
  Plan gathered = plan_of(tiny_spec(), "dgx-a100:1", 1, {.cp = 2});
  gathered.blocks.front().layout.context = ContextParallel::AllGather;
  gathered.blocks.front().layout.recompute = Recompute::Full;
  Plan hosted = plan_of(llama_spec(), "hgx-h100:1", 1, {.tp = 2, .zero_stage = 1});
  hosted.blocks.front().layout.offload.optimizer = Tier::Host;
  struct Case {
    Plan plan;
    void (*change)(Plan&);
  };
  const std::vector<Case> cases = {
      {norms, [](Plan& p) { p.execution.overlap_grad_reduce = false; }},
      {norms, [](Plan& p) { p.blocks.front().layout.zero_stage = 2; }},
      {gathered, [](Plan& p) { p.execution.reuses_gathered = true; }},
      {hosted, [](Plan& p) { p.execution.gradient_passes = 3; }},
      {hosted, [](Plan& p) { p.execution.overlap_param_gather = false; }},
      {adapted_plan(), [](Plan& p) { p.execution.regathers_inputs = false; }},
      {adapted_plan(), [](Plan& p) { p.blocks.front().layout.keep_gathered = true; }},
      {adapted_plan(), [](Plan& p) { p.execution.stream_tp = true, p.micro_batch = 4; }},
  };
  for (std::size_t index = 0; index < cases.size(); ++index) {
    Plan plan = cases[index].plan;
    cases[index].change(plan);
    EXPECT_EQ(idle_text(idle_fields(plan)), "") << index;
    EXPECT_NE(simulate(plan).iteration_time, simulate(cases[index].plan).iteration_time) << index;
  }
}

// A mix whose heads are cut over all ranks has no ring; frozen products keep no inputs.
TEST(IdleLayoutFields, RulesNameWhatChangesNothing) {
  Plan mix = plan_of(tiny_spec(), "dgx-a100:1", 1, {.cp = 2});
  mix.blocks.front().layout.context = ContextParallel::Mix;
  mix.blocks.front().layout.ulysses_degree = 2;
  Plan gathered = plan_of(tiny_spec(), "dgx-a100:1", 1, {.cp = 2});
  gathered.blocks.front().layout.context = ContextParallel::AllGather;
  Plan hosted = plan_of(llama_spec(), "hgx-h100:1", 1, {.tp = 2});
  hosted.blocks.front().layout.offload.optimizer = Tier::Host;
  Plan fp8 = adapted_plan();
  fp8.precision = DType::Fp8;
  struct Case {
    Plan plan;
    void (*change)(Plan&);
    const char* field;
  };
  const std::vector<Case> cases = {
      {mix, [](Plan& p) { p.execution.eager_ring = true; }, "execution.eager_ring"},
      {mix, [](Plan& p) { p.execution.gathered_ring = true; }, "execution.gathered_ring"},
      {mix, [](Plan& p) { p.execution.overlap_context = false; }, "execution.overlap_context"},
      {mix, [](Plan& p) { p.blocks.front().layout.zigzag = false; }, "blocks.zigzag"},
      {gathered, [](Plan& p) { p.execution.overlap_tp = false; }, "execution.overlap_tp"},
      {hosted, [](Plan& p) { p.execution.overlap_param_gather = false; },
       "execution.overlap_param_gather"},
      {adapted_plan(), [](Plan& p) { p.execution.cast_gradients = true; },
       "execution.cast_gradients"},
      {fp8, [](Plan& p) { p.execution.norms_cast = false; }, "execution.norms_cast"},
      {fp8, [](Plan& p) { p.execution.fp8_inputs = false; }, "execution.fp8_inputs"},
  };
  for (const auto& [usual, change, field] : cases) {
    Plan plan = usual;
    change(plan);
    EXPECT_THAT(idle_text(idle_fields(plan)), HasSubstr(field));
    EXPECT_EQ(simulate(plan).iteration_time, simulate(usual).iteration_time) << field;
  }
}

TEST(IdleLayoutFields, AMeshOfOneRankIsNone) {
  for (const TensorMesh kind : {TensorMesh::TwoD, TensorMesh::TwoAndHalfD, TensorMesh::ThreeD}) {
    Plan plan = plan_of(tiny_spec(), "dgx-a100:2", 1, {});
    const Simulation usual = simulate(plan);
    plan.blocks.front().layout.tensor_parallel = kind;
    EXPECT_THAT(idle_text(idle_fields(plan)), HasSubstr("blocks.tensor_parallel"));
    const Simulation mesh = simulate(plan);
    EXPECT_EQ(mesh.iteration_time, usual.iteration_time);
    EXPECT_EQ(mesh.memory.front().total(), usual.memory.front().total());
  }
}

}  // namespace
}  // namespace orrery::plan
