// SPDX-License-Identifier: Apache-2.0
// A slice needs the keys and values of the slices before it, which its device holds; gradients run
// in reverse. Forwards take (n m + p - 1) slices; every stage keeps all activations.
#include "sim/orders/order_blocks.hpp"
#include "sim/schedule.hpp"

namespace orrery::sim {
namespace {

Refusal check(const ScheduleParams& params) {
  return first_broken({check_sizes(params), check_equal_slices(params), check_no_cap(params),
                       check_one_replica(params), check_own_iterations(params),
                       check_own_warm_up(params), check_one_chunk(params)});
}

PipelineOrder order(const ScheduleParams& params) {
  PipelineOrder result = one_chain(params, loop_placement(params), 2);
  for (int i = 0; i < params.stages; ++i) {
    auto& list = result.passes[static_cast<std::size_t>(i)];
    append_all(list, PassKind::Forward, i, result.micro_batches);
    append_reversed(list);
  }
  return result;
}

}  // namespace

extern const Schedule schedule_terapipe = {
    .name = "terapipe",
    .description = "slices of sequences as units: all forwards, then all backwards",
    .constraints = "1 chunk per device",
    .source = "Li et al., TeraPipe, ICML 2021 (arXiv 2102.07988), section 3",
    .traits = {.uses_slices = true},
    .check = check,
    .order = order,
    .most_activations = all_micro_batches,
    .runs_blocking = true,
    .in_plans = true,
    .in_search = true,
};

}  // namespace orrery::sim
