// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/bridge_recipes.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "base/text.hpp"
#include "studies/rows/framework_facts.hpp"
#include "studies/rows/row_cluster.hpp"
#include "studies/rows/row_words.hpp"

namespace orrery::studies {
namespace {

// The minor version of a release 0.x; 0 where the cell names none that is known. Containers carry
// the releases that docs/releases/software-versions.md of NVIDIA-NeMo/Megatron-Bridge lists.
int release_of(std::string_view framework) {
  constexpr auto kNames = std::to_array<std::pair<std::string_view, int>>({{"25.09", 1},
                                                                           {"25.11", 2},
                                                                           {"26.02", 3},
                                                                           {"26.04", 4},
                                                                           {"26.06", 5},
                                                                           {"0.1.", 1},
                                                                           {"0.2.", 2},
                                                                           {"0.3.", 3},
                                                                           {"0.4.", 4},
                                                                           {"0.5.", 5}});
  const auto named = std::find_if(kNames.begin(), kNames.end(), [framework](const auto& name) {
    return mentions(framework, name.first);
  });
  return named == kNames.end() ? 0 : named->second;
}

constexpr std::string_view kLatent = "mla_up_proj";
constexpr std::string_view kLatentAndDense = "mla_up_proj, mlp";
constexpr std::string_view kCheap = "layernorm, moe_act";

// Releases, network and GPUs of recipes that agree. Precisions: bf16, mxfp8, nvfp4, other fp8;
// empty: all. The first that fits counts.
struct RecipeRow {
  int first;
  int last;
  std::string_view network;
  std::string_view gpus;  // families, "" for all
  std::string_view precision;
  BridgeRecipe facts;
};

// NVIDIA-NeMo/Megatron-Bridge, moe_a2a_overlap, recompute_modules and moe_flex_dispatcher_backend:
// v0.1.0rc4 scripts/performance/run_script.py; v0.2.0 scripts/performance/configs/*/
// workload_base_configs.py; v0.3.0, v0.4.0 and v0.5.0 configs/*/*_workload_base_configs.py. Those
// of one release that differ with the batch alone are left out (gpt-oss in mxfp8).
constexpr auto kRecipes = std::to_array<RecipeRow>({
    {1, 1, "deepseekv3", "h100", "", {true, kLatentAndDense, true}},
    {1, 1, "deepseekv3", "b200 gb200", "", {false, kLatent, false}},
    {2, 2, "deepseekv3", "h100", "", {true, kLatentAndDense, true}},
    {2, 2, "deepseekv3", "gb300", "", {false, "moe_act", true}},
    {2, 2, "deepseekv3", "b200", "", {false, kLatent, false}},
    {3, 5, "deepseekv3", "h100", "", {false, kLatentAndDense, true}},
    {3, 5, "deepseekv3", "gb300", "bf16", {false, "moe_act", true}},
    {4, 4, "deepseekv3", "gb200", "mxfp8", {false, "mlp", true}},
    {4, 5, "deepseekv3", "gb200", "fp8", {false, "mlp", true}},
    {4, 5, "deepseekv3", "gb200", "nvfp4", {false, "mlp", true}},
    {5, 5, "deepseekv3", "gb200", "mxfp8", {true, kLatent, true}},
    {5, 5, "deepseekv3", "gb300", "mxfp8", {true, "", true}},
    {2, 5, "deepseekv3", "", "", {false, kLatent, true}},
    {4, 5, "kimik2", "h100", "", {false, kLatentAndDense, false}},
    {4, 5, "kimik2", "gb200 gb300", "", {false, kLatent, true}},
    {4, 5, "kimik2", "b200 b300", "", {false, kLatent, false}},
    {2, 5, "gptoss120b", "h100 b200 gb200", "bf16", {false, kCheap, false}},
    {2, 5, "qwen3235b", "h100", "", {true, "", false}},
    {2, 2, "qwen3235b", "b200", "", {true, "", false}},
    {3, 3, "qwen3235b", "b300", "", {true, "", false}},
    {5, 5, "qwen3235b", "gb200 gb300", "mxfp8", {true, "", true}},
    {2, 5, "qwen3235b", "gb200 gb300", "", {false, "", true}},
    {5, 5, "qwen3235b", "b300", "", {false, "", true}},
    {2, 2, "qwen330b", "h100", "", {true, "", false}},
    {3, 3, "qwen330b", "h100", "", {true, "", true}},
    {5, 5, "qwen330b", "gb200 gb300 b300", "mxfp8", {true, "", true}},
    {2, 2, "qwen330b", "gb200 gb300", "", {false, "", true}},
    {3, 3, "qwen330b", "gb200 gb300 b300", "", {false, "", true}},
    {4, 5, "qwen330b", "", "", {false, "", true}},
});

// "fp8" beside "MXFP8 on Blackwell" is mxfp8 there.
std::string recipe_precision(const Measurement& row, std::string_view family) {
  const bool blackwell = family != "h100" && mentions(row.precision_detail, "mxfp8");
  return row.precision == "fp8" && blackwell ? "mxfp8" : row.precision;
}

}  // namespace

std::optional<BridgeRecipe> bridge_recipe(const Measurement& row) {
  const int release =
      framework_of(row).facts.name == "Megatron-Bridge" ? release_of(row.framework) : 0;
  if (release == 0) {
    return std::nullopt;
  }
  const std::string gpu = stated_gpu(row.gpu);
  const std::string family = gpu.substr(0, gpu.find('-'));
  const std::string network = letters_and_digits(row.model_name);
  const std::string precision = recipe_precision(row, family);
  const std::array<std::string_view, 1> names = {family};
  const auto found = std::find_if(kRecipes.begin(), kRecipes.end(), [&](const RecipeRow& recipe) {
    return release >= recipe.first && release <= recipe.last &&
           network.find(recipe.network) != network.npos &&
           (recipe.gpus.empty() || has_word(recipe.gpus, names)) &&
           (recipe.precision.empty() || recipe.precision == precision);
  });
  return found == kRecipes.end() ? std::nullopt : std::optional(found->facts);
}

}  // namespace orrery::studies
