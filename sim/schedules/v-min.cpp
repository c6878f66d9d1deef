// SPDX-License-Identifier: Apache-2.0
// Building block with neighbouring passes one slot apart: the shortest life of an activation. At
// most floor((p + 4) / 3) activations.
#include "sim/orders/v_pattern.hpp"
#include "sim/schedule.hpp"

namespace orrery::sim {
namespace {

PipelineOrder order(const ScheduleParams& params) {
  const int p = params.stages;
  const int late = p % 3 == 0 ? 2 : 0;  // keeps the slots of a device apart
  std::vector<VBlock> blocks;
  for (int i = 0; i < p; ++i) {
    blocks.push_back({i, 2 * p - i - 1, 2 * p + late + i, 4 * p + late - i - 1});
  }
  return v_pattern(params, blocks, params.warm_up == 0);
}

double most(const ScheduleParams& params) { return (params.stages + 4) / 3; }

}  // namespace

extern const Schedule schedule_v_min = v_pattern_schedule({
    .name = "v-min",
    .description = "V placement with about a third of the activations of 1f1b",
    .order = order,
    .most_activations = most,
});

}  // namespace orrery::sim
