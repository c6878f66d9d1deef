// SPDX-License-Identifier: Apache-2.0
// The device that can start first runs a gradient, a forward if its activation fits, or a weight
// gradient, whatever arrived over links of different latency. With room for 2 p micro-batches and
// no latency nothing idles inside a stage's span.
#include "sim/orders/order_blocks.hpp"
#include "sim/orders/policy.hpp"
#include "sim/orders/zero_bubble.hpp"
#include "sim/schedule.hpp"

namespace orrery::sim {
namespace {

Refusal check(const ScheduleParams& params) {
  return first_broken({check_sizes(params), check_one_slice(params), check_one_replica(params),
                       check_own_iterations(params), check_own_warm_up(params),
                       check_one_or_two_chunks(params), check_cap(params, 1),
                       check_one_fits(params, params.stages), check_looks(params, 1)});
}

PipelineOrder order(const ScheduleParams& params) {
  const std::int64_t cap = cap_of(params, params.stages);
  // Backward, then forward, then weight gradient; without room for a forward, weight gradients
  // come before it. Earlier micro-batches first.
  const auto look = [cap](const DeviceView& view) {
    const bool room = view.lists.memory(view.device) + 1 <= cap;
    return WithinCap(view, {room ? 1 : 2, 0, room ? 2 : 1}, cap);
  };
  const auto place = [](const Pass& pass) {
    return policy_place(pass.micro_batch, pass.virtual_stage);
  };
  return run_policy(
      one_chain(params, params.chunks == 2 ? v_placement(params.stages) : loop_placement(params),
                3),
      params, true, Policy{look, place, 1});
}

}  // namespace

extern const Schedule schedule_crosspipe = {
    .name = "crosspipe",
    .description = "greedy order for slow links between sites, under a cap of activations",
    .constraints = "1 chunk (one way) or 2 chunks (V) per device; cap at least 1",
    .source = "Chen et al., CrossPipe, ATC 2025 (arXiv 2507.00217), section 4",
    .traits = {.splits_backward = true,
               .cuts_every_backward = true,
               .uses_chunks = true,
               .uses_times = true},
    .check = check,
    .order = order,
    .most_activations = cap_or_one_per_stage,
    .own_with_one_chunk = true,
    .in_plans = true,
    .in_search = true,
};

}  // namespace orrery::sim
