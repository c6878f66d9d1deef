// SPDX-License-Identifier: Apache-2.0
// The building block of a V pattern that keeps within a cap of activations and whose run is the
// shortest for the given times, as it is emitted: reordered, or the plain pattern. Tried are v-min,
// v-half and v-zb, which are such blocks, then of every bound of activations within the cap some
// with the longest ways: more micro-batches in flight are not always better when there are few.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "sim/orders/order_blocks.hpp"
#include "sim/orders/order_bound.hpp"
#include "sim/orders/shortest_order.hpp"
#include "sim/orders/v_search.hpp"
#include "sim/orders/zero_bubble.hpp"
#include "sim/schedule.hpp"

namespace orrery::sim {
namespace {

constexpr std::size_t kOfEachBound = 6;
constexpr int kFewestTried = 10;

Refusal check(const ScheduleParams& params) {
  ScheduleParams without = params;
  without.cap = 0;
  return first_broken({check_v_pattern(without), check_pattern_slots(params, kFewestTried),
                       check_cap(params, least_v_peak(params.stages) / 2)});
}

// Patterns that are made at most: for few stages those of every bound, for more as many as take a
// tenth of a second, and for many the fewest, which take seconds.
std::size_t most_tried(const ScheduleParams& params) {
  constexpr std::int64_t kUnits = 60'000;  // of a device, with those that move past each other
  const std::int64_t stages = params.stages;
  return static_cast<std::size_t>(std::max(kUnits / (stages * (params.micro_batches + 2 * stages)),
                                           std::int64_t{kFewestTried}));
}

// Makes patterns until none can be shorter.
class Trial {
 public:
  // `peak` in activations of a chunk.
  Trial(const ScheduleParams& params, int peak)
      : params_(params),
        shortest_(params, peak / 2.0),
        bound_(v_placement(params.stages), params, true, peak),
        most_(most_tried(params)) {}

  bool ended() const {
    const bool is_best = !params_.decides_all && shortest_.shortest() <= bound_.makespan();
    return is_best || tried_.size() >= most_;
  }
  void add(std::vector<VBlock> blocks) {
    if (!ended() && std::find(tried_.begin(), tried_.end(), blocks) == tried_.end()) {
      shortest_.offer(v_pattern(params_, blocks, params_.warm_up == 0));
      tried_.push_back(std::move(blocks));
    }
  }
  PipelineOrder take() { return shortest_.take("v-cap"); }

 private:
  const ScheduleParams& params_;
  ShortestOrder shortest_;
  OrderBound bound_;
  std::size_t most_;
  std::vector<std::vector<VBlock>> tried_;
};

PipelineOrder order(const ScheduleParams& params) {
  const int p = params.stages;
  const double cap = params.cap > 0 ? params.cap : p;
  const int peak = std::max(static_cast<int>(std::min(2 * cap, 4.0 * p)), 2);
  Trial trial(params, peak);
  if (peak >= 2 * p) {
    trial.add(v_zb_blocks(p));
  }
  if (peak / 2 >= (p + 2) / 2) {
    trial.add(v_half_blocks(p, 0));
  }
  trial.add(v_min_blocks(p));
  for (int bound = peak; bound >= least_v_peak(p) && !trial.ended(); --bound) {
    for (std::vector<VBlock>& blocks : v_blocks_within(p, bound, kOfEachBound)) {
      trial.add(std::move(blocks));
    }
  }
  return trial.take();
}

}  // namespace

extern const Schedule schedule_v_cap = {
    .name = "v-cap",
    .description = "V placement, the best building block within a cap of activations",
    .constraints =
        "2 chunks per device; warm-up 0 (reordered) or 1 (plain pattern); cap at least that of "
        "v-min",
    .source =
        "Qi et al., Pipeline Parallelism with Controllable Memory, NeurIPS 2024 (arXiv "
        "2405.15362), section 3",
    .traits = {.splits_backward = true,
               .cuts_every_backward = true,
               .uses_chunks = true,
               .uses_times = true},
    .check = check,
    .order = order,
    .most_activations = cap_or_one_per_stage,
    .in_plans = true,
};

}  // namespace orrery::sim
