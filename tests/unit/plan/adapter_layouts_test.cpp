// SPDX-License-Identifier: Apache-2.0
// How low-rank adapters are cut over tensor-parallel ranks, and what that moves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/simulation/layout_report.hpp"
#include "plan/stages.hpp"
#include "tests/unit/plan/pipeline_fixture.hpp"
#include "tests/unit/plan/volume_fixture.hpp"

namespace orrery::plan {
namespace {

using models::Var;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

models::NetworkSpec spec_of_rank(std::int64_t rank) {
  models::NetworkSpec spec = small_spec();
  spec.adapters.rank = rank;
  return spec;
}

// Column-parallel products: A is cut by the rank, B as the product. Row-parallel ones: A is cut as
// the product, B by the rank. Nothing is summed over the tensor ranks.
TEST(AdapterLayouts, FollowTheProductsThatAreAdapted) {
  Plan plan = small_plan(spec_of_rank(16));
  plan.blocks.front().layout.sequence_parallel = true;
  check_plan(plan, "test");
  std::map<std::string, std::string> layouts;
  for (const BlockReport& block : report_layouts(plan)) {
    for (const HeldTensor& tensor : block.tensors) {
      layouts[tensor.name] = tensor.layout;
    }
  }
  for (const char* by_rank :
       {"w_qkv_lora_low", "w_attention_output_lora", "w_mlp_up_lora_low", "w_mlp_output_lora"}) {
    EXPECT_THAT(layouts.at(by_rank), HasSubstr("rank")) << by_rank;
  }
  EXPECT_THAT(layouts.at("w_q_lora"), HasSubstr("head"));
  EXPECT_THAT(layouts.at("w_attention_projection_lora_low"), HasSubstr("head"));
  EXPECT_THAT(layouts.at("w_up_lora"), HasSubstr("ffn"));
  EXPECT_THAT(layouts.at("w_mlp_down_lora_low"), HasSubstr("ffn"));
  EXPECT_THAT(layouts.at("w_q"), HasSubstr(", frozen"));

  BlockCosts costs(plan);
  const BlockCost& layer =
      costs.of(plan.network.chain[2], plan.blocks.front().layout, plan.micro_batch);
  std::int64_t trained = 0;
  for (const StateGroup& group : layer.states) {
    EXPECT_TRUE(group.frozen || !group.reduced_over(Axis::Tensor));
    trained += group.frozen ? 0 : group.elements;
  }
  const std::int64_t all = 16 * ((1024 + 3072) + 2 * 1024 + (1024 + 4096) + (4096 + 1024));
  EXPECT_EQ(trained, all / plan.blocks.front().layout.tp);
}

// Bytes by kind of collective, of a layer with adapters on tensor ranks with sequence parallelism.
std::map<CommKind, double> moved(const std::vector<Step>& steps) {
  std::map<CommKind, double> bytes;
  for (const Step& step : steps) {
    if (step.collective) {
      bytes[step.comm] += step.bytes.value();
    }
  }
  return bytes;
}

// Beside the layer's own two gathers and two scatters a pass. A of q, k and v and of up reads what
// was gathered for the product; results of the rank's width are gathered or scattered; what the
// adapters of the row-parallel products give, and its gradient, moves by itself.
TEST(AdapterLayouts, MoveWhatParallelLinearAdaptersMove) {
  models::NetworkSpec spec = spec_of_rank(16);
  const double tokens = 4.0 * 512;
  const double wide = 2 * tokens * static_cast<double>(spec.hidden);
  const double low = 2 * tokens * 16;
  for (const bool kept : {false, true}) {
    BlockPlan layout;
    layout.tp = 4;
    layout.sequence_parallel = true;
    layout.keep_gathered = kept;
    const BlockSteps steps = Layer(models::build_network(spec, "test"), layout, 1, 4, 512).steps();
    const auto forward = moved(steps.forward);
    EXPECT_EQ(forward.at(CommKind::AllGather), 2 * wide + 2 * low);
    EXPECT_EQ(forward.at(CommKind::ReduceScatter), 4 * wide + 2 * low);
    EXPECT_EQ(forward.size(), 2U);
    // Layer 1 has no gradient of its input: the scatter for q, k and v is missing.
    const auto backward = moved(steps.backward);
    const double again = kept ? 0 : 2 * wide + 2 * low;
    EXPECT_EQ(backward.at(CommKind::AllGather), 4 * wide + 2 * low + again);
    EXPECT_EQ(backward.at(CommKind::ReduceScatter), 1 * wide + 2 * low);
    EXPECT_EQ(backward.size(), 2U);
  }
}

// Columns of A are cut evenly.
TEST(AdapterLayouts, DivideTheRank) {
  Plan plan = small_plan(spec_of_rank(6));
  EXPECT_THAT(problem(plan),
              AllOf(HasSubstr("adapters.rank = 6 is not divisible by tp = 4"),
                    HasSubstr("a rank that is a multiple of tp"), Not(HasSubstr("tensor_shares"))));
  plan.blocks.front().layout.tp = 2;
  plan.dp *= 2;
  EXPECT_EQ(problem(plan), "");
}

// Only where a list of variables of its own lets axis tp cut the rank.
TEST(AdapterLayouts, MayBeWholeUnderAnyRank) {
  for (const std::int64_t rank : {2, 6}) {
    Plan plan = small_plan(spec_of_rank(rank));
    BlockPlan& layout = plan.blocks.front().layout;
    layout.sequence_parallel = true;
    VarList& variables = layout.variables[static_cast<std::size_t>(Axis::Tensor)];
    variables = VarList({Var::Head, Var::Ffn, Var::Vocab, Var::Seq});
    EXPECT_EQ(problem(plan), "") << rank;
    variables = VarList({Var::Head, Var::Ffn, Var::Vocab, Var::Rank, Var::Seq});
    EXPECT_THAT(problem(plan), HasSubstr("dimension rank = " + std::to_string(rank))) << rank;
  }
}

// Of the two axes that cut tokens, one begins after the other here and before it there.
TEST(AdapterLayouts, CutTokensInOneOrder) {
  Plan plan = small_plan(spec_of_rank(16));
  BlockPlan& layout = plan.blocks.front().layout;
  layout.tp = layout.cp = 2;
  layout.context = ContextParallel::AllGather;
  const auto give = [&](const std::vector<Var>& tensor) {
    layout.variables[static_cast<std::size_t>(Axis::Tensor)] = VarList(tensor);
    layout.variables[static_cast<std::size_t>(Axis::Context)] = VarList({Var::Hidden, Var::Seq});
    return problem(plan);
  };
  EXPECT_EQ(give({Var::Head, Var::Ffn, Var::Rank, Var::Vocab}), "");
  EXPECT_THAT(give({Var::Rank, Var::Vocab, Var::Seq}),
              AllOf(HasSubstr("block \"dense"), HasSubstr("cut dimension seq over several axes"),
                    HasSubstr("in another order"), HasSubstr("seq in the list of one axis alone")));
}

// Down to the latents every rank projects its own tokens, but both matrices of that adapter are cut
// by the rank: A reads a stream that is gathered for it alone, and what is added is scattered.
TEST(AdapterLayouts, GatherTheStreamForAdaptersOfLatents) {
  models::NetworkSpec spec = spec_of_rank(16);
  spec.position = models::PositionKind::Rotary;
  spec.mla = {.q_lora_rank = 256,
              .kv_lora_rank = 128,
              .qk_nope_head_dim = 64,
              .qk_rope_head_dim = 32,
              .v_head_dim = 64};
  BlockPlan layout;
  layout.tp = 4;
  layout.sequence_parallel = true;
  const auto forward = [&] {
    return moved(Layer(models::build_network(spec, "test"), layout, 1, 4, 512).steps().forward);
  };
  auto of_all = forward();
  spec.adapters.qkv = false;
  auto of_others = forward();
  const double tokens = 4.0 * 512;
  const double wide = 2 * tokens * static_cast<double>(spec.hidden);
  const double low = 2 * tokens * 16;
  const double latents = 2 * tokens * (256 + 128 + 32);
  EXPECT_EQ(of_all[CommKind::AllGather] - of_others[CommKind::AllGather], wide + 2 * low);
  EXPECT_EQ(of_all[CommKind::ReduceScatter] - of_others[CommKind::ReduceScatter], latents);
}

// What an adapter adds to a cube's product comes from two products more, and so moves to where the
// product's own result is.
TEST(AdapterLayouts, HaveACube) {
  Plan plan = small_plan(spec_of_rank(16));
  plan.pp = plan.dp = 1;
  plan.cluster.node.gpus = 8;
  plan.cluster.num_nodes = 1;
  plan.stage_blocks = even_stages(plan.network, 1);
  plan.blocks.front().layout.tp = 8;
  plan.blocks.front().layout.zero_stage = 0;
  plan.micro_batch = 8;
  plan.blocks.front().layout.tensor_parallel = TensorMesh::ThreeD;
  EXPECT_EQ(problem(plan), "");
  const auto bytes = [&](std::int64_t rank) {
    BlockPlan& layout = plan.blocks.front().layout;
    const models::Network network = models::build_network(spec_of_rank(rank), "test");
    return sent(Layer(network, layout, 1, plan.micro_batch, 512).steps().forward);
  };
  EXPECT_GT(bytes(16), bytes(0));
  plan.network = models::build_network(spec_of_rank(5), "test");
  EXPECT_THAT(problem(plan), HasSubstr("dimension rank = 5 is not divisible by"));
}

}  // namespace
}  // namespace orrery::plan
