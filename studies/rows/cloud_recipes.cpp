// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/cloud_recipes.hpp"

#include <algorithm>
#include <array>
#include <string>

#include "base/text.hpp"
#include "base/words.hpp"

namespace orrery::studies {
namespace {

constexpr auto kCloudRecipes = std::to_array<CloudRecipe>({
    {.network = "nemotron415b", .half_gradients = false, .overlaps = true},
    {.network = "nemotron4340b", .cudnn_attention = false, .overlaps = true},
    {.network = "grok1", .cudnn_attention = false, .fused_loss = false, .overlaps = true},
    {.network = "gpt3175b", .fused_loss = false, .overlaps = true},
    {.network = ""},
});

}  // namespace

const CloudRecipe* cloud_recipe(const Measurement& row, const FrameworkFacts& framework) {
  if (framework.name != "NeMo" || !mentions(row.origin, "DGX Cloud Benchmarking recipes 25.03")) {
    return nullptr;
  }
  const std::string network = letters_and_digits(row.model_name);
  return std::ranges::find_if(kCloudRecipes, [&](const CloudRecipe& recipe) {
    return network.starts_with(recipe.network);
  });
}

std::string cloud_recipe_contradiction(const Measurement& row, const plan::Execution& execution) {
  const CloudRecipe* recipe = cloud_recipe(row, framework_of(row).facts);
  const bool hides = execution.stream_tp && (execution.overlap_p2p || row.pp.value_or(1) == 1);
  return recipe != nullptr && recipe->overlaps && !hides
             ? "overlap as stated: the script of recipe 25.03 hides tensor parallelism and "
               "messages, too"
             : std::string();
}

}  // namespace orrery::studies
