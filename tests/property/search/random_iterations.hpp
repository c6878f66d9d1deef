// SPDX-License-Identifier: Apache-2.0
// Random micro-batches and pipelines for the properties of DynaPipe's planner.
#pragma once

#include <rapidcheck.h>

#include <algorithm>
#include <vector>

#include "search/problems/micro_batches.hpp"

namespace orrery::search {

// Uniform from the first case on.
inline int drawn(int low, int high_inclusive) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange(low, high_inclusive + 1));
}

// Micro-batches of one replica, and its pipeline.
struct Iteration {
  std::vector<MicroBatch> list;
  PipelineModel model;
};

inline Iteration random_iteration(int most) {
  Iteration iteration;
  iteration.model.stages = drawn(1, 4);
  iteration.model.send = drawn(0, 2) * 1e-3;
  iteration.model.backward_share = 0.01 * drawn(20, 80);
  double largest = 1;
  for (int i = drawn(1, most); i > 0; --i) {
    iteration.list.push_back({0, 0, drawn(1, 40) * 1e-3, static_cast<double>(drawn(1, 20)), 0});
    largest = std::max(largest, iteration.list.back().bytes);
  }
  iteration.model.memory = largest + drawn(0, 60);
  return iteration;
}

}  // namespace orrery::search
