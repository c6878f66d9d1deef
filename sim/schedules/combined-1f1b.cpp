// SPDX-License-Identifier: Apache-2.0
// Interleaved 1F1B with one more forward ahead, so that a forward and a backward of different
// micro-batches run as one block: tokens of one travel to their experts beside kernels of the
// other. Idle (p - 1)(F + Bf) / v where nothing is hidden, for p (1 + 1 / v) activations.
#include "sim/orders/interleaved.hpp"

namespace orrery::sim {
namespace {

PipelineOrder order(const ScheduleParams& params) {
  return interleaved_order(params, params.stages, true);
}

double most(const ScheduleParams& params) { return params.stages * (1 + 1.0 / params.chunks); }

}  // namespace

extern const Schedule schedule_combined_1f1b = {
    .name = "combined-1f1b",
    .description = "interleaved 1F1B whose forwards and backwards hide each other's communication",
    .constraints = "micro-batches a multiple of stages",
    .source =
        "NVIDIA, Megatron-LM, megatron/core/pipeline_parallel/combined_1f1b.py and "
        "--overlap-moe-expert-parallel-comm",
    .traits = {.uses_chunks = true, .joins_passes = true},
    .check = check_interleaved,
    .order = order,
    .most_activations = most,
    .for_experts = true,
    .own_with_one_chunk = true,
    .in_plans = true,
    .in_search = true,
};

}  // namespace orrery::sim
