// SPDX-License-Identifier: Apache-2.0
// Weight gradients apart and i backwards late on stage i, so that they fill the cool-down. Idle
// (p - 1)(F + B - W); every stage keeps p activations.
#include "sim/orders/post_validation.hpp"
#include "sim/orders/zero_bubble.hpp"
#include "sim/schedule.hpp"

namespace orrery::sim {
namespace {

PipelineOrder order(const ScheduleParams& params) {
  return with_post_validation(
      late_weight_grads(
          params, [&](int i) { return params.stages - i; }, [](int i) { return i; }),
      params);
}

}  // namespace

extern const Schedule schedule_zb_h1 = {
    .name = "zb-h1",
    .description = "zero bubble, hand-made, with the activations of 1f1b",
    .constraints = "1 chunk per device",
    .source =
        "Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024 (arXiv 2401.10241), section 2.3",
    .traits = {.splits_backward = true, .cuts_every_backward = true},
    .check = check_hand_made,
    .order = order,
    .most_activations = one_per_stage,
    .in_plans = true,
    .in_search = true,
};

}  // namespace orrery::sim
