// SPDX-License-Identifier: Apache-2.0
// Interleaved 1F1B for numbers of micro-batches that p does not divide: groups of p or a few more,
// so that the last group has at least p, too, since devices would wait in a smaller one. Each
// micro-batch more of a group keeps (v - 1) / v activations more on every device.
#include <algorithm>

#include "sim/orders/interleaved.hpp"

namespace orrery::sim {
namespace {

int group_of(const ScheduleParams& params) {
  return uneven_group(params.stages, params.micro_batches);
}

Refusal check(const ScheduleParams& params) {
  return first_broken({check_basics(params), check_own_warm_up(params)});
}

PipelineOrder order(const ScheduleParams& params) {
  return interleaved_order(params, group_of(params), false);
}

double most(const ScheduleParams& params) {
  const int passes = 2 * (params.stages - 1) + (params.chunks - 1) * group_of(params) + 1;
  return std::min<double>(params.micro_batches, static_cast<double>(passes) / params.chunks);
}

}  // namespace

extern const Schedule schedule_interleaved_uneven = {
    .name = "interleaved-uneven",
    .description = "interleaved for any number of micro-batches, in groups of p or a few more",
    .constraints = "none",
    .source =
        "NVIDIA, Megatron-LM, megatron/core/pipeline_parallel/schedules.py, get_schedule_table, "
        "microbatch_group_size_per_vp_stage",
    .traits = {.uses_chunks = true},
    .check = check,
    .order = order,
    .most_activations = most,
    .in_plans = true,
};

}  // namespace orrery::sim
