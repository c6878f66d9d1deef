// SPDX-License-Identifier: Apache-2.0
// SlimPipe with its output layer cut over all devices, slice by slice: every device runs its shard
// of a slice's logits when the slice has left the last stage, and one slice more in flight hides
// the barrier before its gradient. The passes of layers keep the order of slimpipe.
#include "sim/orders/output_layer.hpp"
#include "sim/orders/sliced_lifo.hpp"
#include "sim/schedule.hpp"

namespace orrery::sim {
namespace {

constexpr int kBarriers = 1;

Refusal check(const ScheduleParams& params) {
  ScheduleParams shards = params;  // on every device, as many as two chunks more
  shards.chunks = params.chunks < kMaxVirtualStages ? params.chunks + 2 : params.chunks;
  return first_broken({check_sliced_lifo(params), check_sizes(shards)});
}

PipelineOrder order(const ScheduleParams& params) {
  return with_vocabulary(sliced_lifo(params, kBarriers), params, kBarriers);
}

double most(const ScheduleParams& params) {
  const int pieces = params.slices * params.chunks;
  return 1 + ((params.chunks > 1 ? 2.0 : 1.0) * (params.stages - 1) + kBarriers) / pieces;
}

}  // namespace

extern const Schedule schedule_slimpipe_vocab = {
    .name = "slimpipe-vocab",
    .description = "slimpipe with the output layer over all stages",
    .constraints = "slices at least stages",
    .source = "Li et al., SlimPipe, SC 2025 (arXiv 2504.14519), section 4, vocabulary parallelism",
    .traits = {.uses_chunks = true,
               .uses_slices = true,
               .uses_times = true,
               .shares_output_layer = true,
               .output_barriers = kBarriers,
               .shares_attention = true},
    .check = check,
    .order = order,
    .most_activations = most,
    .own_with_one_chunk = true,
    .in_plans = true,
};

}  // namespace orrery::sim
