// SPDX-License-Identifier: Apache-2.0
// The best plans that the per-block search has found, each of which fits when its allocations are
// replayed, too (memory_check.hpp).
#pragma once

#include <cstddef>
#include <vector>

#include "search/memory_check.hpp"

namespace orrery::search {

struct FoundPlan {
  Seconds time;
  plan::Plan plan;
};

class FoundPlans {
 public:
  FoundPlans(std::size_t most, MemoryCheck check) : most_(most), check_(check) {}

  // One whose memory was replayed.
  void keep(FoundPlan found);
  // One that fits by categories: it is kept when it is among the best and fits.
  void offer(FoundPlan found, plan::Simulator& simulator);

  // Whether a plan fits when it is replayed.
  plan::MemoryVerdict verdict(const plan::Plan& plan, plan::Simulator& simulator) const {
    return check_(plan, simulator);
  }

  bool empty() const { return plans_.empty(); }
  Seconds best() const { return plans_.front().time; }
  const std::vector<FoundPlan>& plans() const { return plans_; }  // best first

 private:
  std::size_t most_;
  MemoryCheck check_;
  std::vector<FoundPlan> plans_;
};

}  // namespace orrery::search
