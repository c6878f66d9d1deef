// SPDX-License-Identifier: Apache-2.0
// DualPipe cut in half: each device holds its two stages of one direction, down and up. A forward
// and a backward that run as one block hide each other's communication; both results leave at its
// end. Weight gradients apart only where they fill a gap.

#include "sim/orders/dual_pipe.hpp"
#include "sim/orders/order_blocks.hpp"
#include "sim/schedule.hpp"

namespace orrery::sim {
namespace {

Refusal check(const ScheduleParams& params) {
  const std::int64_t least = std::int64_t{2} * params.stages;
  return first_broken({check_basics(params), check_own_warm_up(params), check_chunks(params, 2),
                       check_fewest_micro_batches(params, least)});
}

PipelineOrder order(const ScheduleParams& params) {
  PipelineOrder result = one_chain(params, v_placement(params.stages), 3);
  result.extended = true;
  for (int r = 0; r < params.stages; ++r) {
    append_dual_pipe(result, {r, 2 * params.stages - 1 - r}, params.stages, r,
                     params.micro_batches);
  }
  return result;
}

double most(const ScheduleParams& params) { return params.stages + 1; }

}  // namespace

extern const Schedule schedule_dualpipe_v = {
    .name = "dualpipe-v",
    .description = "forward and backward of different micro-batches as one block, V placement",
    .constraints = "2 chunks per device; micro-batches at least twice the stages",
    .source =
        "DeepSeek-AI, DeepSeek-V3 Technical Report, 2024 (arXiv 2412.19437), section 3.2.1; "
        "DualPipe repository",
    .traits = {.splits_backward = true, .uses_chunks = true, .joins_passes = true},
    .check = check,
    .order = order,
    .most_activations = most,
    .in_plans = true,
    .in_search = true,
};

}  // namespace orrery::sim
