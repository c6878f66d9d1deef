// SPDX-License-Identifier: Apache-2.0
// The list heuristic under a cap of p activations per stage, unless another cap is given.
#include "sim/orders/post_validation.hpp"
#include "sim/orders/zero_bubble.hpp"
#include "sim/schedule.hpp"

namespace orrery::sim {
namespace {

Refusal check(const ScheduleParams& params) {
  return first_broken({check_automatic(params), check_one_fits(params, 1.0 * params.stages)});
}

PipelineOrder order(const ScheduleParams& params) {
  return with_post_validation(automatic_zero_bubble(params, cap_of(params, 1.0 * params.stages)),
                              params);
}

}  // namespace

extern const Schedule schedule_zb_1p = {
    .name = "zb-1p",
    .description = "zero bubble, automatic, with p activations on every stage",
    .constraints = "1 chunk per device; cap at least 1 micro-batch",
    .source =
        "Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024 (arXiv 2401.10241), section 3.1 "
        "and appendix",
    .traits = {.splits_backward = true, .cuts_every_backward = true, .uses_times = true},
    .check = check,
    .order = order,
    .most_activations = cap_or_one_per_stage,
    .in_plans = true,
    .in_search = true,
};

}  // namespace orrery::sim
