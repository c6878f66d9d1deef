// SPDX-License-Identifier: Apache-2.0
// Doubled warm-up and weight gradients 2 i backwards late on stage i: forwards fill the bubble
// before the first backward. Largest idle (p - 1)(F + B - 2 W); 2 p - 1 activations on every stage.
// Stages end one after the other: the optimizer must not wait for all (post-validation).
#include "sim/orders/post_validation.hpp"
#include "sim/orders/zero_bubble.hpp"
#include "sim/schedule.hpp"

namespace orrery::sim {
namespace {

PipelineOrder order(const ScheduleParams& params) {
  return with_post_validation(
      late_weight_grads(
          params, [&](int i) { return 2 * (params.stages - i) - 1; }, [](int i) { return 2 * i; }),
      params);
}

double most(const ScheduleParams& params) { return 2 * params.stages - 1; }

}  // namespace

extern const Schedule schedule_zb_h2 = {
    .name = "zb-h2",
    .description = "zero bubble, hand-made, with about twice the activations of 1f1b",
    .constraints = "1 chunk per device",
    .source =
        "Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024 (arXiv 2401.10241), section 2.3",
    .traits = {.splits_backward = true, .cuts_every_backward = true},
    .check = check_hand_made,
    .order = order,
    .most_activations = most,
    .in_plans = true,
    .in_search = true,
};

}  // namespace orrery::sim
