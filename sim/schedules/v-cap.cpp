// SPDX-License-Identifier: Apache-2.0
// The building block of a V pattern that keeps within a cap of activations and whose run is the
// shortest for the given times; v-min, v-half and v-zb are such blocks. A few of the longest are
// run as plain patterns, with as many micro-batches as show warm-up and cool-down.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "sim/orders/v_search.hpp"
#include "sim/orders/zero_bubble.hpp"
#include "sim/schedule.hpp"

namespace orrery::sim {
namespace {

constexpr std::size_t kTried = 6;

std::string check(const ScheduleParams& params) {
  ScheduleParams without = params;
  without.cap = 0;
  return first_broken(
      {check_v_pattern(without), check_cap(params, least_v_peak(params.stages) / 2)});
}

PipelineOrder order(const ScheduleParams& params) {
  const double cap = params.cap > 0 ? params.cap : params.stages;
  const int peak = std::max(static_cast<int>(std::min(2 * cap, 4.0 * params.stages)), 2);
  ScheduleParams fewer = params;
  fewer.micro_batches = std::min(params.micro_batches, 4 * params.stages);
  const std::vector<std::vector<VBlock>> tried = v_blocks_within(params.stages, peak, kTried);
  std::size_t best = 0;
  SimTime shortest{std::numeric_limits<std::int64_t>::max()};
  for (std::size_t k = 0; k < tried.size(); ++k) {
    const SimTime makespan = plain_v_makespan(fewer, tried[k], shortest);
    if (makespan < shortest) {
      shortest = makespan;
      best = k;
    }
  }
  return v_pattern(params, tried.at(best), params.warm_up == 0);
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
    .splits_backward = true,
    .uses_chunks = true,
    .synchronous = true,
    .check = check,
    .order = order,
    .most_activations = cap_or_one_per_stage,
    .uses_times = true,
    .cuts_every_backward = true,
    .in_plans = true,
};

}  // namespace orrery::sim
