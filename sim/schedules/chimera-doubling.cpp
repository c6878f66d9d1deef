// SPDX-License-Identifier: Apache-2.0
// The slots of chimera with two micro-batches each: one forward of both, then their backwards one
// after the other, so that forwards and backwards of a slot take as long when B = 2 F, and units
// follow each other without the idle time that chimera has between them. Idle 2 (p - 2) forwards
// then, for any number of units, and activations twice. With half the micro-batch size it is the
// published backward halving: forwards of whole micro-batches, backwards of halves.
#include "sim/orders/bidirectional.hpp"
#include "sim/schedule.hpp"

namespace orrery::sim {
namespace {

Refusal check(const ScheduleParams& params) {
  const Refusal broken =
      first_broken({check_basics(params), check_sizes(params), check_own_warm_up(params),
                    check_one_chunk(params), check_even_stages(params)});
  if (!broken.empty()) {
    return broken;
  }
  return check_two_directions(params, 2 * params.stages, 2 * params.stages);
}

PipelineOrder order(const ScheduleParams& params) { return chimera_order(params, 2); }

double most(const ScheduleParams& params) { return 2.0 * params.stages; }

}  // namespace

extern const Schedule schedule_chimera_doubling = {
    .name = "chimera-doubling",
    .description = "chimera with forwards of two micro-batches at a time",
    .constraints = "1 chunk per device; stages even; micro-batches a multiple of 2 x stages",
    .source = "Li and Hoefler, Chimera, SC 2021 (arXiv 2107.06925), section 3.5",
    .traits = {.two_directions = true},
    .check = check,
    .order = order,
    .most_activations = most,
    .in_plans = true,
    .in_search = true,
};

}  // namespace orrery::sim
