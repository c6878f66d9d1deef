// SPDX-License-Identifier: Apache-2.0
// Stage s of direction 0 on device s, of direction 1 on device p - 1 - s. In units of p
// micro-batches the passes of both directions fall into different slots; a unit begins 2 p slots
// after the last. Idle p - 2 passes when F = B; parameters twice, gradients of both copies are
// summed.
#include "sim/orders/bidirectional.hpp"
#include "sim/schedule.hpp"

namespace orrery::sim {
namespace {

Refusal check(const ScheduleParams& params) {
  return first_broken({check_basics(params), check_own_warm_up(params), check_one_chunk(params),
                       check_even_stages(params),
                       check_two_directions(params, params.stages, params.stages)});
}

PipelineOrder order(const ScheduleParams& params) { return chimera_order(params, 1); }

}  // namespace

extern const Schedule schedule_chimera = {
    .name = "chimera",
    .description = "two copies of the model in opposite directions",
    .constraints = "1 chunk per device; stages even; micro-batches a multiple of stages",
    .source = "Li and Hoefler, Chimera, SC 2021 (arXiv 2107.06925), section 3",
    .traits = {.two_directions = true},
    .check = check,
    .order = order,
    .most_activations = one_per_stage,
    .in_plans = true,
    .in_search = true,
};

}  // namespace orrery::sim
