// SPDX-License-Identifier: Apache-2.0
// What Megatron-Bridge's performance recipes of mixtures of experts set and tables of their results
// leave out.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plan/dispatchers.hpp"
#include "plan/plan.hpp"
#include "studies/rows/measurement.hpp"

namespace orrery::studies {

struct BridgeRecipe {
  // Tokens of one micro-batch travel to their experts beside kernels of another.
  bool hides_exchanges = false;
  std::string_view recomputed = {};  // recompute_modules
  plan::Dispatcher dispatcher = plan::Dispatcher::AllToAll;
  bool fused_experts = false;  // cutedsl_fused_grouped_mlp
  bool fp8_attention = false;  // fp8_dot_product_attention
};

// Releases 0.x, network and GPUs of recipes that agree. Precisions: bf16, mxfp8, nvfp4, other fp8;
// empty: all; batches: 0 for all.
struct RecipeKey {
  int first;
  int last;
  std::string_view network;
  std::string_view gpus;  // families, "" for all
  std::string_view precision;
  std::int64_t batch;
};
// What a row says of them; release 0: no recipe's.
struct RecipeAsked {
  int release = 0;
  std::string network;
  std::string family;  // of the GPU
  std::string precision;
  std::int64_t batch = 0;
};
RecipeAsked recipe_asked(const Measurement& row);
bool is_run_of(const RecipeAsked& asked, const RecipeKey& key);
// Of a table whose entries have a `key`: the first that fits counts; the end where none does.
template <typename Table>
auto find_recipe(const Table& table, const Measurement& row) {
  const RecipeAsked asked = recipe_asked(row);
  return std::find_if(table.begin(), table.end(),
                      [&](const auto& entry) { return is_run_of(asked, entry.key); });
}
// "25.11", the container of a release 0.x.
std::string_view container_of(int release);

// Of the release that the row's framework names; nothing for other frameworks and networks.
std::optional<BridgeRecipe> bridge_recipe(const Measurement& row);

// What CUDA graphs replay of layers with experts; Dense: nothing.
plan::GraphScope recipe_graphs(const Measurement& row);

// That a release is taken as another one or is not known; of DeepSeek-V3, whose recipes train a
// layer that predicts a second token (src/megatron/bridge/recipes/deepseek/deepseek_v3.py,
// mtp_num_layers = 1), where the row says nothing of it.
std::vector<std::string> recipe_remarks(const Measurement& row);

}  // namespace orrery::studies
