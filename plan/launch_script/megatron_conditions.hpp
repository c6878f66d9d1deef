// SPDX-License-Identifier: Apache-2.0
// What Megatron-LM asks of a plan before it joins passes, spreads experts, sends tokens by its flex
// dispatcher or exchanges heads: what the exporter refuses and what the importer does are the same.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "plan/plan.hpp"

namespace orrery::plan {

struct MegatronConflict {
  std::string_view feature;  // schedule or field of the plan
  std::string_view flag;     // that asks for it
  std::string_view problem;  // "without expert parallelism", behind either
  std::string_view search;   // hint: constraints of a search without the problem
};

// The first condition of megatron/core/model_parallel_config.py, transformer/transformer_config.py,
// transformer/moe/token_dispatcher.py and TransformerEngine's context parallelism that the plan
// does not meet.
std::optional<MegatronConflict> megatron_conflict(const Plan& plan);

}  // namespace orrery::plan
