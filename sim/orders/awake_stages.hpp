// SPDX-License-Identifier: Apache-2.0
// Schedules in half cycles: which stages are worth a look, so that lists take O(passes).
#pragma once

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

namespace orrery::sim {

// Stages that may go on: those beside which something happened in the last two half cycles.
class AwakeStages {
 public:
  explicit AwakeStages(std::size_t stages) : changed_(stages, 0), listed_(stages, true) {
    next_.resize(stages);
    std::iota(next_.begin(), next_.end(), std::size_t{0});
  }
  // Those to look at in this half cycle.
  const std::vector<std::size_t>& begin() {
    now_.swap(next_);
    next_.clear();
    for (const std::size_t stage : now_) {
      listed_[stage] = false;
    }
    return now_;
  }
  // After the look; `acted`: the stage has run a pass.
  void has_looked(std::size_t stage, std::size_t half, bool acted) {
    if (acted) {
      wake_around(stage, half);
    } else if (half < changed_[stage] + 2) {
      list(stage);
    }
  }

 private:
  void wake_around(std::size_t stage, std::size_t half) {
    for (std::size_t i = stage - std::min<std::size_t>(stage, 1);
         i < std::min(stage + 2, changed_.size()); ++i) {
      changed_[i] = half;
      list(i);
    }
  }
  void list(std::size_t stage) {
    if (!listed_[stage]) {
      listed_[stage] = true;
      next_.push_back(stage);
    }
  }
  std::vector<std::size_t> changed_;  // half cycle
  std::vector<bool> listed_;
  std::vector<std::size_t> now_;
  std::vector<std::size_t> next_;
};

}  // namespace orrery::sim
