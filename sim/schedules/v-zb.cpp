// SPDX-License-Identifier: Apache-2.0
// Building block with four slots between devices on the way down and two on the way up, so that a
// device's passes of one block lie at the residues 0, 1, 2, 3 of six; p activations.
#include "sim/orders/v_pattern.hpp"
#include "sim/schedule.hpp"

namespace orrery::sim {
namespace {

PipelineOrder order(const ScheduleParams& params) {
  return v_pattern(params, v_zb_blocks(params.stages), params.warm_up == 0);
}

double most(const ScheduleParams& params) { return params.stages; }

}  // namespace

extern const Schedule schedule_v_zb = v_pattern_schedule({
    .name = "v-zb",
    .description = "V placement without bubbles in steady state, activations of 1f1b",
    .order = order,
    .most_activations = most,
});

}  // namespace orrery::sim
