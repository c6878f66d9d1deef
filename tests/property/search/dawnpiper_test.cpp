// SPDX-License-Identifier: Apache-2.0
// DawnPiper against every way to cut tiny chains.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/property/search/tiny_chains.hpp"

namespace orrery::search {
namespace {

struct Piped {
  std::vector<Layer> layers;
  std::vector<int> forwards;  // of the layers' times
  int devices = 1;
  int memory = 1;    // MB
  int slowness = 1;  // ms a MB to or from the host
  bool asynchronous = false;
};

Piped random_piped() {
  Piped piped;
  piped.layers = random_layers(9);
  piped.devices = evenly(1, std::min(7, static_cast<int>(piped.layers.size()) + 1));
  piped.slowness = evenly(1, 4);
  piped.asynchronous = evenly(0, 2) == 1;
  for (Layer& layer : piped.layers) {
    piped.forwards.push_back(evenly(0, layer.time));
    layer.activations = evenly(0, 2) == 0 ? 0 : layer.activations;
  }
  return piped;
}

Json answer_of_piped(const Piped& piped) {
  std::string text;
  for (std::size_t i = 0; i < piped.layers.size(); ++i) {
    const Layer& layer = piped.layers[i];
    text += fmt::format(
        R"({}{{"forward": "{} ms", "backward": "{} ms", "parameters": "{} MB", "activations": "{} MB"}})",
        text.empty() ? "" : ",", piped.forwards[i], layer.time - piped.forwards[i],
        layer.parameters, layer.activations);
  }
  return solve("dawnpiper", fmt::format(R"({{"schema": "orrery-problem", "version": 1,
      "layers": [{}], "devices": {}, "memory": "{} MB", "host_bandwidth": "{} MB/s",
      "asynchronous": {}}})",
                                        text, piped.devices, piped.memory, 1000.0 / piped.slowness,
                                        piped.asynchronous));
}

// Least time of a stage in ms: to free `excess` MB, the dearest bytes are copied while copies are
// free; the cheapest rest costs what recomputing or copying it takes, whichever is less.
double relieved_stage(const Piped& piped, int first, int last, int stage) {
  const std::vector<Layer>& layers = piped.layers;
  const int held = piped.devices - stage;
  const int versions = piped.asynchronous ? held : 1;
  const double compute = sum(layers, first, last, &Layer::time);
  const double activations = sum(layers, first, last, &Layer::activations);
  const double excess = (versions * sum(layers, first, last, &Layer::parameters) +
                         held * activations - piped.memory) /
                        held;
  if (excess <= 0) {
    return compute;
  }
  if (excess > activations * (1 + 1e-9)) {
    return kNever;
  }
  std::vector<std::pair<double, double>> bytes;  // cost a MB, MB
  for (int i = first; i < last; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const double amount = layers[at].activations;
    if (amount == 0) {
      continue;
    }
    bytes.emplace_back(std::min(piped.forwards[at] / amount, 2.0 * piped.slowness), amount);
  }
  std::sort(bytes.begin(), bytes.end());
  double left = std::max(0.0, excess - compute / (2 * piped.slowness));
  double cost = 0;
  for (const auto& [rate, amount] : bytes) {
    const double used = std::min(left, amount);
    cost += used * rate;
    left -= used;
  }
  return compute + cost;
}

// The least over all cuts of the most that `cost` gives to a stage.
double least_of_cuts(const Piped& piped,
                     const std::function<double(int first, int last, int stage)>& cost) {
  double best = kNever;
  all_cuts(static_cast<int>(piped.layers.size()), piped.devices, [&](const std::vector<int>& ends) {
    if (static_cast<int>(ends.size()) != piped.devices) {
      return;
    }
    double worst = 0;
    for (int stage = 0; stage < piped.devices; ++stage) {
      const auto at = static_cast<std::size_t>(stage);
      worst = std::max(worst, cost(stage == 0 ? 0 : ends[at - 1], ends[at], stage));
    }
    best = std::min(best, worst);
  });
  return best;
}

double least_longest_stage(const Piped& piped) {
  return least_of_cuts(piped, [&](int first, int last, int stage) {
    return relieved_stage(piped, first, last, stage);
  });
}

// MB of parameters that a device has to hold in the cut that needs least.
int least_parameters(const Piped& piped) {
  return static_cast<int>(least_of_cuts(piped, [&](int first, int last, int stage) {
    return sum(piped.layers, first, last, &Layer::parameters) *
           (piped.asynchronous ? piped.devices - stage : 1);
  }));
}

TEST(PlannerTwins, DawnPiperFitsWhereAnyCutDoesAndIsNearlyAlwaysTheBest) {
  int equal = 0;
  int fitting = 0;
  EXPECT_TRUE(rc::check([&] {
    Piped piped = random_piped();
    const int least = least_parameters(piped);
    piped.memory = std::max(1, evenly(least - 1, least + (evenly(0, 2) == 0 ? least / 4 : 200)));
    const double best = least_longest_stage(piped);
    const Json answer = answer_of_piped(piped);
    RC_ASSERT((answer.find("feasible") != nullptr) == (best == kNever));
    if (best == kNever) {
      return;
    }
    const double found = number(answer, "bottleneck_s") * 1000;
    RC_ASSERT(found >= best * (1 - 1e-9));
    ++fitting;
    equal += found <= best * (1 + 1e-9) ? 1 : 0;
  }));
  EXPECT_GE(equal, fitting * 97 / 100) << equal << " of " << fitting;
}

TEST(PlannerTwins, DawnPiperBalancesComputeWhereMemoryIsPlenty) {
  EXPECT_TRUE(rc::check([] {
    Piped piped = random_piped();
    piped.memory = 100'000;
    const double best = least_longest_stage(piped);
    RC_ASSERT(std::abs(number(answer_of_piped(piped), "bottleneck_s") * 1000 - best) < 1e-9 * best);
  }));
}

}  // namespace
}  // namespace orrery::search
