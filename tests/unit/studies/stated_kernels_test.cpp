// SPDX-License-Identifier: Apache-2.0
// What a row states of dispatchers, graphs, router and attention counts before its recipe.
#include <gmock/gmock.h>

#include <string>

#include "studies/rows/bridge_recipes.hpp"
#include "studies/rows/row_plan.hpp"
#include "studies/rows/unread_cells.hpp"
#include "tests/unit/studies/testing.hpp"

namespace orrery::studies {
namespace {

using testing::Changes;
using testing::execution_of;
using testing::row_of;

Changes recipe_row(const std::string& framework, const std::string& network, const std::string& gpu,
                   const std::string& precision) {
  return testing::mixture({{"framework", framework},
                           {"model_name", network},
                           {"gpu", gpu},
                           {"precision", precision},
                           {"recompute", ""},
                           {"confidence", "partial"}});
}

plan::Execution noted(Changes row, const std::string& notes) {
  row["notes"] = notes;
  return execution_of(row);
}

TEST(StatedKernels, RowsOverrideRecipes) {
  const Changes row = recipe_row("Megatron-Bridge 26.06", "deepseek-v3", "GB300-288GB", "mxfp8");
  const plan::Execution recipe = execution_of(row);
  EXPECT_TRUE(recipe.deduplicated_dispatch && recipe.fused_permutation && recipe.cuda_graphs &&
              recipe.fused_router && recipe.fp8_attention);
  EXPECT_FALSE(noted(row, "no HybridEP").fused_permutation);
  EXPECT_FALSE(noted(row, "no HybridEP").deduplicated_dispatch);
  EXPECT_FALSE(noted(row, "moe_token_dispatcher_type=alltoall").deduplicated_dispatch);
  EXPECT_TRUE(noted(row, "DeepEP").deduplicated_dispatch);
  EXPECT_FALSE(noted(row, "DeepEP").fused_permutation);
  EXPECT_FALSE(noted(row, "moe_router_fusion=False").fused_router);
  EXPECT_FALSE(noted(row, "fp8_dot_product_attention=False").fp8_attention);
  for (const char* notes : {"cuda_graph_impl=none", "no CUDA graphs"}) {
    EXPECT_FALSE(noted(row, notes).cuda_graphs) << notes;
    EXPECT_EQ(noted(row, notes).graph_scope, plan::GraphScope::Dense) << notes;
  }
  const Changes deep = recipe_row("Megatron-Bridge 25.11", "deepseek-v3", "H100-80GB-SXM", "fp8");
  EXPECT_TRUE(execution_of(deep).deduplicated_dispatch);
  EXPECT_FALSE(noted(deep, "DeepEP off").deduplicated_dispatch);
}

TEST(StatedKernels, AnyRowMayStateThem) {
  const Changes row = recipe_row("Megatron-LM", "", "H100-80GB-SXM", "fp8");
  EXPECT_FALSE(execution_of(row).fused_router);
  EXPECT_TRUE(noted(row, "moe_router_fusion=True").fused_router);
  EXPECT_TRUE(noted(row, "fp8_dot_product_attention=True").fp8_attention);
  EXPECT_EQ(noted(row, "routing imbalance 1.66").routing_imbalance, 1.66);
  EXPECT_EQ(noted(row, "no routing imbalance").routing_imbalance, 1.0);
  EXPECT_EQ(noted(row, "cuda_graph_scope=attn").graph_scope, plan::GraphScope::Attention);
  EXPECT_EQ(noted(row, "CUDA graphs (moe_router, attn)").graph_scope, plan::GraphScope::Attention);
  EXPECT_NE(noted(row, "CUDA graphs (no attention)").graph_scope, plan::GraphScope::Attention);
  EXPECT_EQ(noted(row, "CUDA graphs of router").graph_scope, plan::GraphScope::Router);
  Changes graphs = row;
  graphs["notes"] = "CUDA graphs";
  EXPECT_THAT(unread_cells(row_of(graphs)),
              ::testing::Contains("CUDA graphs beside experts as kernels launched one by one"));
  graphs["notes"] = "cuda_graph_scope=attn";
  EXPECT_THAT(unread_cells(row_of(graphs)),
              ::testing::Not(::testing::Contains(
                  "CUDA graphs beside experts as kernels launched one by one")));
  // Kernels of experts do not need ranks of them.
  Changes whole = recipe_row("Megatron-Bridge 26.06", "qwen3-30b-a3b", "B300-288GB-SXM", "mxfp8");
  whole["ep"] = "1";
  EXPECT_TRUE(execution_of(whole).fused_experts);
}

// Entries by release, GPU, precision and batch (scripts/performance of the tags).
TEST(StatedKernels, RecipesAreThoseOfTheirReleases) {
  const auto recipe = [](const char* release, const char* network, const char* gpu,
                         const char* precision, const char* batch) {
    Changes row = recipe_row(std::string("Megatron-Bridge ") + release, network, gpu, precision);
    row["global_batch"] = batch;
    return row_of(row);
  };
  const Measurement nvfp4 = recipe("26.06", "deepseek-v3", "B200-180GB-SXM", "nvfp4", "4096");
  EXPECT_TRUE(bridge_recipe(nvfp4)->hides_exchanges);
  EXPECT_EQ(bridge_recipe(nvfp4)->dispatcher, plan::Dispatcher::DeepEp);
  EXPECT_EQ(bridge_recipe(nvfp4)->recomputed, "mla_up_proj, layernorm, moe_act");
  EXPECT_EQ(recipe_graphs(nvfp4), plan::GraphScope::Dense);
  EXPECT_EQ(
      bridge_recipe(recipe("26.02", "deepseek-v3", "B300-288GB-SXM", "bf16", "4096"))->recomputed,
      "mla_up_proj, layernorm, moe_act");
  EXPECT_EQ(recipe_graphs(recipe("26.04", "qwen3-30b-a3b", "B200-180GB-SXM", "bf16", "512")),
            plan::GraphScope::Attention);
  EXPECT_EQ(recipe_graphs(recipe("26.04", "qwen3-30b-a3b", "GB200-186GB", "mxfp8", "512")),
            plan::GraphScope::Router);
  EXPECT_EQ(recipe_graphs(recipe("26.06", "kimi-k2", "GB200-186GB", "bf16", "2048")),
            plan::GraphScope::Router);
  EXPECT_FALSE(
      execution_of(recipe_row("Megatron-Bridge 26.06", "gpt-oss-20b", "GB200-186GB", "mxfp8"))
          .fused_router);
}

}  // namespace
}  // namespace orrery::studies
