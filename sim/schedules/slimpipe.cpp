// SPDX-License-Identifier: Apache-2.0
// Slices travel in groups through the chunks; a micro-batch goes back in the reverse of its forward
// order, which frees keys and values as they are used up. Idle (p - 1) passes of a slice and chunk
// each way; 1 + 2 (p - 1) / (n v) micro-batches of activations on the first device.
#include "sim/orders/sliced_lifo.hpp"
#include "sim/schedule.hpp"

namespace orrery::sim {
namespace {

PipelineOrder order(const ScheduleParams& params) { return sliced_lifo(params, 0); }

double most(const ScheduleParams& params) {
  const int pieces = params.slices * params.chunks;
  return 1 + (params.chunks > 1 ? 2.0 : 1.0) * (params.stages - 1) / pieces;
}

}  // namespace

extern const Schedule schedule_slimpipe = {
    .name = "slimpipe",
    .description = "1F1B over uniform slices and chunks, last in, first out",
    .constraints = "slices at least stages",
    .source = "Li et al., SlimPipe, SC 2025 (arXiv 2504.14519), section 4",
    .traits = {.uses_chunks = true, .uses_slices = true, .shares_attention = true},
    .check = check_sliced_lifo,
    .order = order,
    .most_activations = most,
    .in_plans = true,
    .in_search = true,
};

}  // namespace orrery::sim
