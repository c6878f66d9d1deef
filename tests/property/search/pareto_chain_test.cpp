// SPDX-License-Identifier: Apache-2.0
// The layer-wise dynamic program against all choices of short chains.
#include "search/problems/pareto_chain.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <optional>

namespace orrery::search {
namespace {

struct Cost {
  double time = 0;
  std::int64_t memory = 0;
};

Cost cost_of(const std::vector<LayerChoices>& layers, const std::vector<double>& switches,
             const std::vector<int>& choice) {
  Cost cost;
  const std::size_t n = layers.front().time.size();
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const auto s = static_cast<std::size_t>(choice[i]);
    if (i > 0) {
      cost.time += switches[static_cast<std::size_t>(choice[i - 1]) * n + s];
    }
    cost.time += layers[i].time[s];
    cost.memory += layers[i].memory[s];
  }
  return cost;
}

// The least time over all strategies^layers choices that fit.
std::optional<double> exhaustive(const std::vector<LayerChoices>& layers,
                                 const std::vector<double>& switches, std::int64_t budget) {
  const int n = static_cast<int>(layers.front().time.size());
  std::optional<double> best;
  std::vector<int> choice(layers.size(), 0);
  while (true) {
    const Cost cost = cost_of(layers, switches, choice);
    if (cost.memory <= budget && (!best || cost.time < *best)) {
      best = cost.time;
    }
    std::size_t i = 0;
    while (i < choice.size() && ++choice[i] == n) {
      choice[i++] = 0;
    }
    if (i == choice.size()) {
      return best;
    }
  }
}

TEST(ParetoChainProperty, EqualsExhaustiveChoice) {
  EXPECT_TRUE(rc::check([] {
    const auto n = static_cast<std::size_t>(*rc::gen::inRange(1, 5));
    const auto length = static_cast<std::size_t>(*rc::gen::inRange(1, 7));
    std::vector<LayerChoices> layers(length);
    for (LayerChoices& layer : layers) {
      for (std::size_t s = 0; s < n; ++s) {
        layer.time.push_back(*rc::gen::inRange(0, 100));
        layer.memory.push_back(*rc::gen::inRange(0, 30));
      }
    }
    std::vector<double> switches(n * n, 0);
    for (std::size_t i = 0; i < n * n; ++i) {
      switches[i] = i % (n + 1) == 0 ? 0 : *rc::gen::inRange(0, 40);
    }
    const std::int64_t budget = *rc::gen::inRange(0, 120);
    const std::optional<double> expected = exhaustive(layers, switches, budget);
    const std::optional<ChainPlan> plan = best_chain_plan(layers, switches, budget);
    RC_ASSERT(plan.has_value() == expected.has_value());
    if (plan) {
      const Cost cost = cost_of(layers, switches, plan->strategies);
      RC_ASSERT(cost.time == *expected && plan->time == *expected);
      RC_ASSERT(cost.memory == plan->memory && plan->memory <= budget);
    }
  }));
}

}  // namespace
}  // namespace orrery::search
