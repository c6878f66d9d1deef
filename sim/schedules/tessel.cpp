// SPDX-License-Identifier: Apache-2.0
// A body that repeats, found by search: every device runs each of its passes once a period, of
// micro-batches so far apart that nothing waits. The period is the largest load of a device where
// dependencies, transfers and the cap allow it. An output layer over all devices (M-shape) is
// part of the search.
#include <algorithm>

#include "sim/orders/list_builder.hpp"
#include "sim/orders/order_blocks.hpp"
#include "sim/orders/output_layer.hpp"
#include "sim/orders/periodic_body.hpp"
#include "sim/orders/zero_bubble.hpp"

namespace orrery::sim {
namespace {

constexpr int kMaxStages = 64;  // the search looks at all slots of all passes

// The output layer's barrier takes two micro-batches more.
double own_cap(const ScheduleParams& params) {
  return params.stages + (params.warm_up == 1 ? 2 : 0);
}

Refusal check(const ScheduleParams& params) {
  return first_broken({check_sizes(params), check_one_slice(params), check_one_replica(params),
                       check_own_iterations(params),
                       check_at_most(params.stages, kMaxStages, Size::Stages),
                       check_one_or_two_chunks(params),
                       check_warm_up(params, 1, "output layer on the last stage or, 1, over all"),
                       check_cap(params, 1), check_one_fits(params, own_cap(params))});
}

PipelineOrder order(const ScheduleParams& params) {
  PipelineOrder skeleton = one_chain(params, zigzag_placement(params.stages, params.chunks), 2);
  if (params.warm_up == 1) {
    skeleton = output_layer_skeleton(skeleton, 1);
  }
  const ScheduleParams timed = with_stage_times(skeleton, params);
  return repeat_shortest_body(std::move(skeleton), timed, cap_of(params, own_cap(params)));
}

double most(const ScheduleParams& params) {
  return std::min<double>(params.cap > 0 ? params.cap : own_cap(params), params.micro_batches);
}

}  // namespace

extern const Schedule schedule_tessel = {
    .name = "tessel",
    .description = "the shortest repeating body, found by search, under a cap of activations",
    .constraints =
        "1 or 2 (V) chunks per device; at most 64 stages; cap at least 1; warm-up 1: output layer "
        "over all stages",
    .source = "Lin et al., Tessel, HPCA 2024 (arXiv 2311.15269), section 4",
    .traits = {.uses_chunks = true, .uses_times = true},
    .check = check,
    .order = order,
    .most_activations = most,
    .own_with_one_chunk = true,
    .in_plans = true,
};

}  // namespace orrery::sim
