// SPDX-License-Identifier: Apache-2.0
// What Megatron-Bridge's performance recipes of mixtures of experts set and tables of their results
// leave out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plan/plan.hpp"
#include "studies/rows/measurement.hpp"

namespace orrery::studies {

// What sends tokens: NCCL's all-to-alls, or the libraries of the flex dispatcher.
enum class Dispatcher : std::uint8_t { AllToAll, DeepEp, HybridEp };

struct BridgeRecipe {
  // Tokens of one micro-batch travel to their experts beside kernels of another.
  bool hides_exchanges = false;
  std::string_view recomputed = {};  // recompute_modules
  Dispatcher dispatcher = Dispatcher::AllToAll;
  bool fused_experts = false;  // cutedsl_fused_grouped_mlp
  bool fp8_attention = false;  // fp8_dot_product_attention
};

// Of the release that the row's framework names; nothing for other frameworks and networks.
std::optional<BridgeRecipe> bridge_recipe(const Measurement& row);

// What CUDA graphs replay of layers with experts; Dense: nothing.
plan::GraphScope recipe_graphs(const Measurement& row);

// Of DeepSeek-V3, whose recipes train a layer that predicts a second token (src/megatron/bridge/
// recipes/deepseek/deepseek_v3.py, mtp_num_layers = 1), where the row says nothing of it.
std::vector<std::string> recipe_remarks(const Measurement& row);

}  // namespace orrery::studies
