// SPDX-License-Identifier: Apache-2.0
// Interleaved 1F1B: device i holds chunks c p + i; micro-batches travel in groups of p, one chunk
// after the other. Idle (p - 1)(F + Bf) / v without latency, for p (1 + (p - 1) / (p v))
// activations on the first device and v times the transfers.
#include "sim/orders/interleaved.hpp"

namespace orrery::sim {
namespace {

PipelineOrder order(const ScheduleParams& params) {
  return interleaved_order(params, params.stages, false);
}

double most(const ScheduleParams& params) {
  return params.stages + static_cast<double>(params.stages - 1) / params.chunks;
}

}  // namespace

extern const Schedule schedule_interleaved = {
    .name = "interleaved",
    .description = "1F1B over several model chunks per device, in groups of p micro-batches",
    .constraints = "micro-batches a multiple of stages",
    .source = "Narayanan et al., Megatron-LM, SC 2021 (arXiv 2104.04473), section 2.2",
    .traits = {.uses_chunks = true},
    .check = check_interleaved,
    .order = order,
    .most_activations = most,
    .in_plans = true,
    .in_search = true,
};

}  // namespace orrery::sim
