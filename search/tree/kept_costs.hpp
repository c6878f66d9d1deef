// SPDX-License-Identifier: Apache-2.0
// What the simulators of a search know of costs of blocks and of lists, kept for the next search of
// the same network, cluster (but for the memory of its GPUs and their price), profile, sequence,
// precision and execution. Batch, memory reserve and what is searched may differ: nothing that is
// kept depends on them. A simulator for each thread; for one search at a time.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "plan/simulation/simulate.hpp"

namespace orrery::search {

class KeptCosts {
 public:
  // The one of a thread; threads are asked for in their order.
  plan::Simulator& of(std::size_t thread, const plan::Plan& base) {
    if (thread == simulators_.size()) {
      simulators_.push_back(std::make_unique<plan::Simulator>(base));
    }
    return *simulators_[thread];
  }

 private:
  std::vector<std::unique_ptr<plan::Simulator>> simulators_;
};

}  // namespace orrery::search
