// SPDX-License-Identifier: Apache-2.0
// The best plans that the per-block search has found, each of which fits when its allocations are
// replayed, too (memory_check.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <span>
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
  static constexpr std::size_t kFastest = 5;

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

  // All of them; the first so many with the intervals of their times, as far as `stop` lets them be
  // drawn.
  std::vector<Found> simulated(std::size_t drawn, int draws,
                               const std::function<bool()>& stop) const;

  // Those that the search goes on from, as many however many are kept.
  std::span<const FoundPlan> fastest() const {
    return std::span(plans_).first(std::min<std::size_t>(plans_.size(), kFastest));
  }

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
