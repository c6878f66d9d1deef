// SPDX-License-Identifier: Apache-2.0
// The best plans that the per-block search has found, each of which fits when its allocations are
// replayed, too (memory_check.hpp).
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "search/tree/memory_check.hpp"
#include "search/tree/search.hpp"

namespace orrery::search {

struct FoundPlan {
  Seconds time;
  plan::Plan plan;
};

class FoundPlans {
 public:
  // `reserve` is kept free on every card; plans are replayed by `jobs` threads.
  FoundPlans(std::size_t most, ByteCount reserve, int jobs)
      : most_(most), reserve_(reserve), jobs_(jobs) {}

  // One whose memory was replayed.
  void keep(FoundPlan found);
  // One that fits by categories: it is kept when it is among the best and fits.
  void offer(FoundPlan found, plan::Simulator& simulator);

  // Whether a plan fits when it is replayed.
  plan::MemoryVerdict verdict(const plan::Plan& plan, plan::Simulator& simulator) const {
    return replay_verdict(plan, simulator, reserve_, jobs_);
  }

  // Each with the interval of its time, as far as `stop` lets it be drawn.
  std::vector<Found> drawn(const std::function<bool()>& stop) const;

  bool empty() const { return plans_.empty(); }
  Seconds best() const { return plans_.front().time; }
  const std::vector<FoundPlan>& plans() const { return plans_; }  // best first

 private:
  std::size_t most_;
  ByteCount reserve_;
  int jobs_;
  std::vector<FoundPlan> plans_;
};

}  // namespace orrery::search
