// SPDX-License-Identifier: Apache-2.0
// Looped breadth-first: every chunk runs all micro-batches before the next chunk starts, so that
// its parameters are gathered and its gradients reduced once per batch. Idle (p - 1)(F + Bf) / v
// without latency when m >= p; every device keeps all m activations. One chunk per device is gpipe.
#include "sim/schedule.hpp"

namespace orrery::sim {
namespace {

Refusal check(const ScheduleParams& params) {
  return first_broken({check_basics(params), check_own_warm_up(params)});
}

PipelineOrder order(const ScheduleParams& params) {
  const int p = params.stages;
  PipelineOrder result = empty_order(params, loop_placement(params), 2);
  for (int device = 0; device < p; ++device) {
    auto& list = result.passes[static_cast<std::size_t>(device)];
    for (int chunk = 0; chunk < params.chunks; ++chunk) {
      append_all(list, PassKind::Forward, chunk * p + device, params.micro_batches);
    }
    for (int chunk = params.chunks - 1; chunk >= 0; --chunk) {
      append_all(list, PassKind::Backward, chunk * p + device, params.micro_batches);
    }
  }
  return result;
}

}  // namespace

extern const Schedule schedule_breadth_first = {
    .name = "breadth-first",
    .description = "all micro-batches of a chunk before the next chunk",
    .constraints = "none",
    .source = "Lamy-Poirier, Breadth-First Pipeline Parallelism, MLSys 2023 (arXiv 2211.05953)",
    .traits = {.uses_chunks = true},
    .check = check,
    .order = order,
    .most_activations = all_micro_batches,
    .in_plans = true,
    .in_search = true,
};

}  // namespace orrery::sim
