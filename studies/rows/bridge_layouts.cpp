// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/bridge_layouts.hpp"

#include <fmt/format.h>

#include <array>
#include <string_view>
#include <utility>

#include "studies/rows/bridge_recipes.hpp"

namespace orrery::studies {
namespace {

struct RecipeLayout {
  RecipeKey key;
  std::int64_t tp;
  std::int64_t pp;
  std::int64_t vpp;
  std::int64_t ep;
  std::int64_t micro_batch;
  std::int64_t global_batch;
};

// NVIDIA-NeMo/Megatron-Bridge scripts/performance: v0.1.0rc4 configs/*/*_llm_pretrain.yaml
// (perf_matrix) and run_script.py (pp_vp_map), v0.2.0 configs/*/workload_base_configs.py, in 8 bits
// where precisions differ. The tables of 26.02 and 26.06 have what v0.3.0 and v0.5.0 have.
constexpr auto kRecipeLayouts = std::to_array<RecipeLayout>({
    {{1, 1, "deepseekv3", "b200", "", 0}, 1, 16, 1, 8, 1, 2048},
    {{1, 1, "deepseekv3", "gb200", "", 0}, 1, 4, 4, 64, 1, 2048},
    {{1, 1, "qwen3235b", "h100", "", 0}, 2, 8, 4, 32, 1, 2048},
    {{1, 1, "qwen3235b", "gb200", "", 0}, 1, 8, 1, 8, 1, 1024},
    {{1, 1, "qwen3235b", "b200", "", 0}, 1, 8, 2, 8, 1, 1024},
    {{1, 1, "qwen330b", "h100", "", 0}, 1, 2, 12, 8, 2, 512},
    {{1, 1, "qwen330b", "gb200", "", 0}, 1, 1, 1, 8, 4, 512},
    {{1, 1, "qwen330b", "b200", "", 0}, 1, 1, 1, 8, 1, 512},
    {{2, 2, "deepseekv3", "gb300", "", 0}, 1, 4, 4, 64, 1, 2048},
    {{2, 2, "deepseekv3", "gb200", "", 0}, 1, 4, 4, 64, 1, 2048},
    {{2, 2, "deepseekv3", "b200", "", 0}, 1, 16, 1, 8, 1, 2048},
    {{2, 2, "deepseekv3", "h100", "", 0}, 2, 8, 4, 64, 1, 8192},
    {{2, 2, "gptoss120b", "gb300", "", 0}, 1, 1, 1, 64, 4, 512},
    {{2, 2, "gptoss120b", "gb200", "", 0}, 1, 1, 1, 64, 4, 512},
    {{2, 2, "gptoss120b", "b200", "", 0}, 1, 1, 1, 64, 4, 512},
    {{2, 2, "gptoss120b", "h100", "", 0}, 1, 4, 1, 8, 1, 512},
    {{2, 2, "qwen3235b", "gb300", "", 0}, 2, 1, 1, 64, 4, 1024},
    {{2, 2, "qwen3235b", "gb200", "", 0}, 1, 8, 1, 8, 1, 1024},
    {{2, 2, "qwen3235b", "b200", "", 0}, 1, 8, 4, 8, 1, 1024},
    {{2, 2, "qwen3235b", "h100", "", 0}, 2, 8, 4, 32, 1, 2048},
    {{2, 2, "qwen330b", "gb300", "", 0}, 1, 1, 1, 8, 8, 512},
    {{2, 2, "qwen330b", "gb200", "", 0}, 1, 1, 1, 8, 4, 512},
    {{2, 2, "qwen330b", "b200", "", 0}, 1, 1, 1, 8, 1, 512},
    {{2, 2, "qwen330b", "h100", "", 0}, 1, 2, 12, 8, 1, 512},
});

}  // namespace

std::vector<std::string> recipe_contradictions(const Measurement& row) {
  const auto* found = find_recipe(kRecipeLayouts, row);
  if (found == kRecipeLayouts.end()) {
    return {};
  }
  using Cell = std::pair<std::string_view, std::pair<const OptionalCount*, std::int64_t>>;
  const auto cells =
      std::to_array<Cell>({{"tp", {&row.tp, found->tp}},
                           {"pp", {&row.pp, found->pp}},
                           {"vpp", {&row.vpp, found->vpp}},
                           {"ep", {&row.ep, found->ep}},
                           {"micro_batch", {&row.micro_batch, found->micro_batch}},
                           {"global_batch", {&row.global_batch, found->global_batch}}});
  std::vector<std::string> lines;
  for (const auto& [name, cell] : cells) {
    if (cell.first->has_value() && **cell.first != cell.second) {
      lines.push_back(fmt::format("{} {}, not {} as in the recipe of {}", name, **cell.first,
                                  cell.second, container_of(found->key.first)));
    }
  }
  return lines;
}

}  // namespace orrery::studies
