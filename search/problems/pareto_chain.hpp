// SPDX-License-Identifier: Apache-2.0
// A chain of layers, each of which takes one of the same few strategies with its own time and
// memory, and a cost wherever neighbours differ: the least total time within a memory budget. It is
// the layer-wise problem of Galvatron (Miao et al., PVLDB 16(3), 2022, section 3.3), solved without
// memory bins: per strategy of the last layer the Pareto frontier of (memory, time) is kept, so the
// answer is exact for any budget.
//
// Complexity: layers x strategies^2 x frontier x log. Deterministic: of equal times the
// strategy with the lowest index, decided from the last layer on.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace orrery::search {

struct LayerChoices {
  std::vector<double> time;          // by strategy
  std::vector<std::int64_t> memory;  // by strategy, in the unit of the budget; >= 0
};

struct ChainPlan {
  double time = 0;
  std::int64_t memory = 0;
  std::vector<int> strategies;  // by layer
};

// `switches[from * n + to]` is the cost of `to` after `from`, n strategies. Nothing when no choice
// fits `budget`. Every layer has n strategies.
std::optional<ChainPlan> best_chain_plan(std::span<const LayerChoices> layers,
                                         std::span<const double> switches, std::int64_t budget);

}  // namespace orrery::search
