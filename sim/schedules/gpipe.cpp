// SPDX-License-Identifier: Apache-2.0
// All forwards, then all backwards. Time (m + p - 1)(F + Bf) without latency; every stage keeps all
// m activations.
#include "sim/schedule.hpp"

namespace orrery::sim {
namespace {

Refusal check(const ScheduleParams& params) {
  return first_broken({check_basics(params), check_one_chunk(params), check_own_warm_up(params)});
}

PipelineOrder order(const ScheduleParams& params) {
  PipelineOrder result = empty_order(params, loop_placement(params), 2);
  for (int stage = 0; stage < params.stages; ++stage) {
    auto& list = result.passes[static_cast<std::size_t>(stage)];
    append_all(list, PassKind::Forward, stage, params.micro_batches);
    append_all(list, PassKind::Backward, stage, params.micro_batches);
  }
  return result;
}

}  // namespace

extern const Schedule schedule_gpipe = {
    .name = "gpipe",
    .description = "all forwards, then all backwards",
    .constraints = "1 chunk per device",
    .source = "Huang et al., GPipe, NeurIPS 2019 (arXiv 1811.06965), section 2.3",
    .check = check,
    .order = order,
    .most_activations = all_micro_batches,
    .runs_blocking = true,
    .in_plans = true,
    .in_search = true,
};

}  // namespace orrery::sim
