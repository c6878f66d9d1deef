// SPDX-License-Identifier: Apache-2.0
// Two chunks per device, down the devices and back up; the list heuristic for this placement under
// a cap of p activations. No idle time at all when F = B = W.
#include "sim/orders/post_validation.hpp"
#include "sim/orders/v_heuristic.hpp"
#include "sim/orders/zero_bubble.hpp"
#include "sim/schedule.hpp"

namespace orrery::sim {
namespace {

Refusal check(const ScheduleParams& params) {
  return first_broken({check_sizes(params), check_one_slice(params), check_one_replica(params),
                       check_validated_iterations(params), check_own_warm_up(params),
                       check_chunks(params, 2), check_cap(params, params.stages),
                       check_one_fits(params, params.stages), check_heuristic_sizes(params)});
}

PipelineOrder order(const ScheduleParams& params) {
  return with_post_validation(automatic_v(params, cap_of(params, params.stages)), params);
}

}  // namespace

extern const Schedule schedule_zb_v = {
    .name = "zb-v",
    .description = "zero bubble on a V placement, automatic, with the activations of 1f1b",
    .constraints = "2 chunks per device; cap at least stages micro-batches",
    .source =
        "Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024 (arXiv 2401.10241), section 6",
    .traits = {.splits_backward = true,
               .cuts_every_backward = true,
               .uses_chunks = true,
               .uses_times = true},
    .check = check,
    .order = order,
    .most_activations = cap_or_one_per_stage,
    .in_plans = true,
    .in_search = true,
};

}  // namespace orrery::sim
