// SPDX-License-Identifier: Apache-2.0
// What is added up over ranks are parts of a sum: every network's operators, and what a plan may
// not ask for; and the values that ranks which share the vocabulary reduce for its loss.
#include "plan/block/layout_check.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/simulation/layout_report.hpp"
#include "tests/unit/base/testing.hpp"
#include "tests/unit/plan/plan_fixture.hpp"

namespace orrery::plan {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string layout_problem(const Plan& plan) {
  const auto error = testing::error_of([&] { check_layouts(plan, "plan.json"); });
  return error ? error->what() : "";
}

TEST(LayoutCheck, SumsOfEveryNetworkAreOfDifferentParts) {
  for (const std::string& name : models::zoo_names()) {
    for (const bool sequence : {false, true}) {
      BlockPlan layout;
      layout.tp = 2;
      layout.sequence_parallel = sequence;
      const std::string said = layout_problem(one_stage_plan(layout, name));
      EXPECT_EQ(said.find("copies of one result"), std::string::npos) << name << ": " << said;
    }
  }
}

// A lookup beside a weight that tensor ranks cut along another variable: each looked up the whole
// row, and eight of them would be added.
TEST(LayoutCheck, RefusesALookupThatTakesAnotherVariable) {
  BlockPlan layout;
  layout.tp = 8;
  Plan plan = one_stage_plan(layout);
  models::Block& embedding = plan.network.blocks.front();
  embedding.tensors.push_back({.name = "w_of_heads",
                               .kind = models::TensorKind::Weight,
                               .dims = {{Var::Latent, 32}, {Var::Head, 16}}});
  EXPECT_EQ(layout_problem(plan), "");
  embedding.operators.front().weights.push_back(static_cast<int>(embedding.tensors.size()) - 1);
  EXPECT_THAT(layout_problem(plan),
              AllOf(HasSubstr("token_embedding"), HasSubstr("axis tp cuts head")));
}

TEST(LayoutCheck, RefusesVariablesThatAreNotSummed) {
  BlockPlan layout;
  layout.tp = 2;
  Plan plan = one_stage_plan(layout);
  plan.blocks.front().layout.variables[static_cast<std::size_t>(Axis::Tensor)] =
      VarList({Var::Position, Var::Head});
  EXPECT_THAT(problem(plan), AllOf(HasSubstr("position_sum"), HasSubstr("axis tp cuts positions"),
                                   HasSubstr("position_add"), HasSubstr("without positions")));
}

// The table of tokens is cut along the vocabulary, that of relative positions along the heads;
// ranks of data sum both gradients, those of tp neither.
TEST(LayoutCheck, TablesOfT5HaveVariablesOfTheirOwn) {
  BlockPlan layout;
  layout.tp = 8;
  layout.sequence_parallel = true;
  const models::Network network = models::load_network("t5-3b");
  const BlockRules rules = rules_of(layout, true);
  const auto cut = [&](int position, const std::string& name) {
    const models::Block& block =
        network.blocks[static_cast<std::size_t>(network.chain[static_cast<std::size_t>(position)])];
    for (const models::Operator& op : block.operators) {
      for (const int weight : op.weights) {
        const models::Tensor& tensor = block.tensors[static_cast<std::size_t>(weight)];
        if (tensor.name == name) {
          const Assignment assignment = assign(block, op, rules.of(op));
          const auto summed = summed_axes(op, tensor, assignment, rules.of(op),
                                          read_layout(block, op, weight, rules));
          EXPECT_FALSE(summed[static_cast<std::size_t>(Axis::Tensor)]) << name;
          EXPECT_TRUE(summed[static_cast<std::size_t>(Axis::Shard)]) << name;
          return stored_weight(op, tensor, assignment, rules.of(op))[Axis::Tensor];
        }
      }
    }
    return Placement::replicated();
  };
  EXPECT_EQ(cut(0, "w_tokens"), Placement::sharded(Var::Vocab));
  EXPECT_EQ(cut(1, "w_relative_bias"), Placement::sharded(Var::Head));
}

// The largest logit, the target's and the sum of exponentials, 4 bytes a token each (Megatron-LM
// core/tensor_parallel/cross_entropy.py); none where every rank has the whole vocabulary.
TEST(VocabularyLoss, ReducesThreeValuesAToken) {
  for (const bool shared : {true, false}) {
    BlockPlan layout;
    layout.tp = 4;
    Plan plan = one_stage_plan(layout);
    plan.execution.vocab_parallel = shared;
    const BlockCosts costs(plan);
    double bytes = 0;
    int reductions = 0;
    for (const Step& step :
         costs.steps_of(plan.network.chain.back(), layout, plan.micro_batch).forward) {
      if (step.collective) {
        EXPECT_EQ(step.comm, sim::CommKind::AllReduce);
        EXPECT_EQ(step.group.ranks, 4);
        ++reductions;
        bytes += step.bytes.value();
      }
    }
    const auto tokens = static_cast<double>(plan.micro_batch * plan.sequence);
    EXPECT_EQ(reductions, shared ? 3 : 0);
    EXPECT_EQ(bytes, shared ? 3 * 4 * tokens : 0.0);
  }
}

// A table of positions is padded to what its ranks divide, as that of tokens is.
TEST(LayoutCheck, TablesOfPositionsAreCutOverAnyNumberOfRows) {
  models::NetworkSpec spec = small_spec();
  spec.hidden = 1152;
  spec.heads = spec.kv_heads = 18;
  spec.ffn_hidden = 4608;
  spec.sequence = spec.max_positions = 2048;
  Plan plan = small_plan(spec, "dgx-a100:9");
  plan.pp = 1;
  plan.dp = 8;
  plan.micro_batch = 3;
  BlockPlan layout;
  layout.tp = 9;
  layout.tensor_parallel = TensorMesh::TwoD;
  plan.stage_blocks = even_stages(plan.network, 1);
  plan.blocks = {{static_cast<int>(plan.network.chain.size()), layout}};
  EXPECT_EQ(layout_problem(plan), "");
  const std::vector<BlockReport> reports = report_layouts(plan);
  const auto table =
      std::find_if(reports.front().tensors.begin(), reports.front().tensors.end(),
                   [](const HeldTensor& held) { return held.name == "w_positions"; });
  ASSERT_NE(table, reports.front().tensors.end());
  EXPECT_EQ(table->shape, "positions 683 x hidden 384");
}

}  // namespace
}  // namespace orrery::plan
