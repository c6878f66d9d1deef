// SPDX-License-Identifier: Apache-2.0
// What Megatron-Bridge's performance recipes of mixtures of experts set and tables of their results
// leave out.
#pragma once

#include <optional>
#include <string_view>

#include "studies/rows/measurement.hpp"

namespace orrery::studies {

struct BridgeRecipe {
  // Tokens of one micro-batch travel to their experts beside kernels of another.
  bool hides_exchanges = false;
  std::string_view recomputed = {};  // recompute_modules
  bool deduplicates = false;         // DeepEP or HybridEP send tokens
};

// Of the release that the row's framework names; nothing for other frameworks and networks.
std::optional<BridgeRecipe> bridge_recipe(const Measurement& row);

}  // namespace orrery::studies
