// SPDX-License-Identifier: Apache-2.0
// Building block with neighbouring passes one slot apart: the shortest life of an activation. At
// most floor((p + 4) / 3) activations.
#include "sim/orders/v_pattern.hpp"
#include "sim/schedule.hpp"

namespace orrery::sim {
namespace {

PipelineOrder order(const ScheduleParams& params) {
  return v_pattern(params, v_min_blocks(params.stages), params.warm_up == 0);
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
