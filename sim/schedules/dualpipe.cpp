// SPDX-License-Identifier: Apache-2.0
// Half the micro-batches from each end of the devices, on two copies of the model. A forward and a
// backward that run as one block hide each other's communication; both results leave at its end.
// Weight gradients apart only where they fill a gap.
#include <algorithm>

#include "sim/orders/bidirectional.hpp"
#include "sim/orders/dual_pipe.hpp"
#include "sim/orders/order_blocks.hpp"
#include "sim/schedule.hpp"

namespace orrery::sim {
namespace {

Refusal check(const ScheduleParams& params) {
  return first_broken({check_basics(params), check_own_warm_up(params), check_one_chunk(params),
                       check_even_stages(params),
                       check_two_directions(params, 2 * std::min(params.stages, 1 << 29), 1)});
}

PipelineOrder order(const ScheduleParams& params) {
  PipelineOrder result = two_directions(params, 1);
  result.extended = true;
  for (int r = 0; r < params.stages; ++r) {
    const bool lower = r >= params.stages / 2;
    append_dual_pipe(
        result, {stage_of(result, lower ? 1 : 0, 0, r), stage_of(result, lower ? 0 : 1, 0, r)},
        params.stages / 2, std::min(r, params.stages - 1 - r), params.micro_batches / 2);
  }
  return result;
}

double most(const ScheduleParams& params) { return params.stages + 1; }

}  // namespace

extern const Schedule schedule_dualpipe = {
    .name = "dualpipe",
    .description = "forward and backward of different micro-batches as one block, two directions",
    .constraints =
        "stages even; micro-batches even and at least twice the stages; 1 chunk per device",
    .source =
        "DeepSeek-AI, DeepSeek-V3 Technical Report, 2024 (arXiv 2412.19437), section 3.2.1; "
        "DualPipe repository",
    .traits = {.splits_backward = true, .two_directions = true, .joins_passes = true},
    .check = check,
    .order = order,
    .most_activations = most,
    .in_plans = true,
    .in_search = true,
};

}  // namespace orrery::sim
