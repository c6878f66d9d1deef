// SPDX-License-Identifier: Apache-2.0
// Building block with the forwards two slots apart on the way down and one on the way up; at most
// floor((p + 2) / 2) activations.
#include "sim/orders/v_pattern.hpp"
#include "sim/schedule.hpp"

namespace orrery::sim {
namespace {

PipelineOrder order(const ScheduleParams& params) {
  return v_pattern(params, v_half_blocks(params.stages, 0), params.warm_up == 0);
}

double most(const ScheduleParams& params) { return (params.stages + 2) / 2; }

}  // namespace

extern const Schedule schedule_v_half = v_pattern_schedule({
    .name = "v-half",
    .description = "V placement with about half the activations of 1f1b",
    .order = order,
    .most_activations = most,
});

}  // namespace orrery::sim
