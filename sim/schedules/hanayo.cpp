// SPDX-License-Identifier: Apache-2.0
// Chunks run down the devices and back up, several times, so that turns need no transfer. Backwards
// first, then the earliest micro-batch's deepest forward, within p micro-batches of activations.
// Idle 2 (p - 1) chunk passes when F = B. More than p micro-batches follow each other in the waves
// that they make when F = B, whatever passes take: where backwards are longer, those rules starve
// the devices of forwards between rounds of p, more with every round. When B = 2 F the waves idle
// 2 (p - 1) chunk passes more for every round.
#include <fmt/format.h>

#include "sim/orders/order_blocks.hpp"
#include "sim/orders/policy.hpp"
#include "sim/schedule.hpp"

namespace orrery::sim {
namespace {

Refusal check(const ScheduleParams& params) {
  return first_broken(
      {check_basics(params), check_own_warm_up(params), check_looks(params, 1),
       params.chunks % 2 == 0
           ? Refusal()
           : refused(fmt::format("chunks must be even, 2 for each wave, not {}", params.chunks),
                     Size::Chunks, params.chunks + 1.0)});
}

PipelineOrder order(const ScheduleParams& asked) {
  ScheduleParams params = asked;
  if (params.micro_batches > params.stages) {
    params.times = {{.forward = SimTime{2}}};
  }
  const std::int64_t cap = std::int64_t{params.stages} * params.chunks * params.activation;
  const Policy policy{
      [cap](const DeviceView& view) { return WithinCap(view, kGradientsFirst, cap); },
      [](const Pass& pass) {
        const bool forward = pass.kind == PassKind::Forward;
        return policy_place(pass.micro_batch, forward ? kMaxVirtualStages - pass.virtual_stage : 0);
      },
      1};
  return run_policy(one_chain(params, zigzag_placement(params.stages, params.chunks), 2), params,
                    false, policy);
}

}  // namespace

extern const Schedule schedule_hanayo = {
    .name = "hanayo",
    .description = "waves over the devices and back, one direction",
    .constraints = "chunks even: 2 per wave",
    .source = "Liu et al., Hanayo, SC 2023 (arXiv 2308.15762), section 3",
    .traits = {.uses_chunks = true, .uses_times = true},
    .check = check,
    .order = order,
    .most_activations = one_per_stage,
    .in_plans = true,
    .one_list_in_plans = true,
    .in_search = true,
    .most_chunks_tried = 16,  // eight waves, as its authors; more only add transfers
};

}  // namespace orrery::sim
