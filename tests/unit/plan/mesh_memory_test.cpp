// SPDX-License-Identifier: Apache-2.0
// The replay of a layer's allocations against the formula of what it saves, on tensor meshes under
// every recomputation, and with adapters that experts share.
#include <gtest/gtest.h>

#include <string_view>
#include <vector>

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

}  // namespace
}  // namespace orrery::plan
