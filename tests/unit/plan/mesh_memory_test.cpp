// SPDX-License-Identifier: Apache-2.0
// The replay of a layer's allocations against the formula of what it saves, on tensor meshes under
// every recomputation, and with adapters that experts share.
#include <gtest/gtest.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "plan/stages.hpp"
#include "tests/unit/plan/balanced_replay.hpp"
#include "tests/unit/plan/plan_fixture.hpp"

namespace orrery::plan {
namespace {

models::Network network_of(const std::string& name, const models::AdapterSpec& adapters) {
  models::NetworkSpec spec = name.empty() ? small_spec() : models::load_network(name).spec;
  spec.adapters = adapters;
  return models::build_network(spec, "test");
}

BlockPlan mesh_block(TensorMesh mesh, bool keeps) {
  BlockPlan layout;
  layout.tp = mesh == TensorMesh::TwoD ? 16 : 8;
  layout.tensor_parallel = mesh;
  layout.tp_depth = mesh == TensorMesh::TwoAndHalfD ? 2 : 0;
  layout.keep_gathered = keeps;
  return layout;
}

void expect_mesh_balanced(TensorMesh mesh, bool keeps, const models::Network& network) {
  const std::vector<std::string_view> sets = {"norms+mlp-activation", "qkv+mlp-up", "attention",
                                              "mlp-down+attention-output"};
  for (const Recompute recompute : {Recompute::None, Recompute::Selective, Recompute::Full,
                                    Recompute::Products, Recompute::Operators}) {
    for (std::size_t set = 0; set < (recompute == Recompute::Operators ? sets.size() : 1); ++set) {
      for (const bool fused : {false, true}) {
        SCOPED_TRACE(testing::Message()
                     << to_text(mesh) << " " << to_text(recompute) << " " << sets[set]
                     << (keeps ? " keeps" : "") << (fused ? " fused" : ""));
        Plan plan = one_stage_plan(mesh_block(mesh, keeps));
        plan.network = network;
        plan.micro_batch = 16;
        plan.execution.fused_attention = fused;
        BlockPlan& layout = plan.blocks.front().layout;
        layout.recompute = recompute;
        layout.recomputed = parse_operator_set(sets[set], "test");
        expect_balanced(plan, {}, 1);
        expect_balanced(plan, {}, 2);
      }
    }
  }
}

// The result of a cube's product is what is scattered of it: kept once, not beside the sums.
TEST(MeshMemory, KeptProductsTakeNoMoreThanEverything) {
  for (const TensorMesh mesh : {TensorMesh::TwoD, TensorMesh::TwoAndHalfD, TensorMesh::ThreeD}) {
    for (const bool fused : {false, true}) {
      Plan plan = one_stage_plan(mesh_block(mesh, false));
      plan.micro_batch = 16;
      plan.execution.fused_attention = fused;
      const auto saved = [&](Recompute recompute) {
        BlockPlan& layout = plan.blocks.front().layout;
        layout.recompute = recompute;
        BlockCosts costs(plan);
        return costs.of(plan.network.chain[1], layout, plan.micro_batch, {}).saved;
      };
      EXPECT_LT(saved(Recompute::Products), saved(Recompute::None)) << to_text(mesh);
      EXPECT_GT(saved(Recompute::Products), saved(Recompute::Full)) << to_text(mesh);
    }
  }
}

TEST(MeshMemory, HoldsForEveryRecomputation) {
  for (const TensorMesh mesh : {TensorMesh::TwoD, TensorMesh::TwoAndHalfD, TensorMesh::ThreeD}) {
    for (const bool keeps : {false, true}) {
      for (const char* name : {"", "llama3-8b"}) {
        for (const int rank : {0, 16}) {
          expect_mesh_balanced(mesh, keeps, network_of(name, {.rank = rank}));
        }
      }
    }
  }
}

// One pair of all experts keeps what theirs would keep, and is held whole by each of their ranks.
TEST(SharedAdapters, KeepAndHold) {
  for (const Recompute recompute :
       {Recompute::None, Recompute::Selective, Recompute::Full, Recompute::Products}) {
    std::vector<std::int64_t> saved;
    for (const bool shared : {false, true}) {
      BlockPlan layout;
      layout.ep = 4;
      layout.recompute = recompute;
      Plan plan = one_stage_plan(layout, "mixtral-8x7b");
      plan.network = network_of("mixtral-8x7b", {.rank = 16, .shared_by_experts = shared});
      plan.stage_blocks = even_stages(plan.network, 1);
      plan.blocks.front().count = static_cast<int>(plan.network.chain.size());
      expect_balanced(plan, {}, 1);
      expect_balanced(plan, {}, 2);
      BlockCosts costs(plan);
      const BlockCost& layer =
          costs.of(plan.network.chain[2], plan.blocks.front().layout, plan.micro_batch);
      saved.push_back(layer.saved.value());
      for (const StateGroup& group : layer.states) {
        EXPECT_TRUE(group.frozen || !shared || group.reduced_over(Axis::Expert));
      }
    }
    if (recompute != Recompute::Products) {  // which counts the products of matrices alone
      EXPECT_EQ(saved.front(), saved.back());
    }
  }
}

// The fp32 logits of a cube are kept as its loss reads them, not once for each part of their sums.
TEST(MeshMemory, LossesKeepTheLogitsThatTheyRead) {
  Plan plan = one_stage_plan(mesh_block(TensorMesh::ThreeD, false));
  plan.micro_batch = 16;
  const BlockPlan& layout = plan.blocks.front().layout;
  BlockCosts costs(plan);
  const BlockContext context =
      costs.block_context(plan.network.chain.back(), layout, plan.micro_batch);
  const std::int64_t logits =
      4 * plan.micro_batch * plan.sequence * plan.network.spec.vocab / layout.tp;
  const BlockMemory memory = block_memory(context, {}, false);
  const auto largest = std::max_element(
      memory.forward.begin(), memory.forward.end(),
      [](const MemoryEvent& one, const MemoryEvent& other) { return one.bytes < other.bytes; });
  EXPECT_EQ(largest->bytes, logits);
}

// Where a tensor rank has whole experts and every rank all tokens, the experts keep those of
// theirs.
TEST(ExpertInputs, AreKeptByTheRanksThatReadThem) {
  for (const Recompute recompute : {Recompute::None, Recompute::Full, Recompute::Products}) {
    BlockPlan layout;
    layout.tp = layout.ep = 4;
    layout.expert_tp = 1;
    layout.recompute = recompute;
    Plan plan = one_stage_plan(layout, "mixtral-8x7b");
    expect_balanced(plan, {}, 1);
    BlockCosts costs(plan);
    const models::Block& block =
        plan.network.blocks[static_cast<std::size_t>(plan.network.chain[1])];
    const BlockRules rules = rules_of(layout, plan.execution.vocab_parallel);
    const auto products = std::find_if(
        block.operators.begin(), block.operators.end(),
        [](const models::Operator& op) { return op.kind == models::OpKind::GroupedGemm; });
    const std::vector<Layout> produced = produced_layouts(block, rules);
    const int tokens = products->inputs.front();
    EXPECT_TRUE(produced[static_cast<std::size_t>(tokens)][Axis::Tensor].is_replicated());
    EXPECT_TRUE(saved_layout(block, rules, *products, tokens, produced)[Axis::Tensor].is_sharded());
  }
}

}  // namespace
}  // namespace orrery::plan
