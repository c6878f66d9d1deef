// SPDX-License-Identifier: Apache-2.0
// The list heuristic under a cap of 2 p activations per stage, unless another cap is given.
#include "sim/orders/post_validation.hpp"
#include "sim/orders/zero_bubble.hpp"
#include "sim/schedule.hpp"

namespace orrery::sim {
namespace {

Refusal check(const ScheduleParams& params) {
  return first_broken({check_automatic(params), check_one_fits(params, 2.0 * params.stages)});
}

PipelineOrder order(const ScheduleParams& params) {
  return with_post_validation(automatic_zero_bubble(params, cap_of(params, 2.0 * params.stages)),
                              params);
}

double most(const ScheduleParams& params) {
  return params.cap > 0 ? params.cap : 2 * params.stages;
}

}  // namespace

extern const Schedule schedule_zb_2p = {
    .name = "zb-2p",
    .description = "zero bubble, automatic, with 2 p activations on every stage",
    .constraints = "1 chunk per device; cap at least 1 micro-batch",
    .source =
        "Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024 (arXiv 2401.10241), section 3.1 "
        "and appendix",
    .traits = {.splits_backward = true, .cuts_every_backward = true, .uses_times = true},
    .check = check,
    .order = order,
    .most_activations = most,
    .in_plans = true,
    .in_search = true,
};

}  // namespace orrery::sim
