// SPDX-License-Identifier: Apache-2.0
// Micro-batches of random times and bytes under a random model of a pipeline.
#pragma once

#include <algorithm>
#include <vector>

#include "search/problems/micro_batches.hpp"
#include "tests/property/search/tiny_chains.hpp"

namespace orrery::search {

struct Iteration {
  std::vector<MicroBatch> list;
  PipelineModel model;
};

inline Iteration random_iteration(int most) {
  Iteration iteration;
  iteration.model.stages = evenly(1, 5);
  iteration.model.send = evenly(0, 3) * 1e-3;
  iteration.model.backward_share = 0.01 * evenly(20, 81);
  double largest = 1;
  for (int i = evenly(1, most + 1); i > 0; --i) {
    iteration.list.push_back({0, 0, evenly(1, 41) * 1e-3, static_cast<double>(evenly(1, 21)), 0});
    largest = std::max(largest, iteration.list.back().bytes);
  }
  iteration.model.memory = largest + evenly(0, 61);
  return iteration;
}

}  // namespace orrery::search
