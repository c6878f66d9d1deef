// SPDX-License-Identifier: Apache-2.0
// Slices go forward in order, those of one micro-batch back in reverse. Idle (p - 1) slices of
// forward and backward; stage i keeps n + p - 1 - i slices.
#include "sim/orders/order_blocks.hpp"
#include "sim/schedule.hpp"

namespace orrery::sim {
namespace {

Refusal check(const ScheduleParams& params) {
  return first_broken({check_sizes(params), check_equal_slices(params), check_no_cap(params),
                       check_one_replica(params), check_own_iterations(params),
                       check_own_warm_up(params), check_one_chunk(params)});
}

PipelineOrder order(const ScheduleParams& params) {
  const int n = params.slices;
  PipelineOrder result = one_chain(params, loop_placement(params), 2);
  for (int i = 0; i < params.stages; ++i) {
    const auto pass = [i](PassKind kind, int unit) {
      return Pass{kind, static_cast<std::uint16_t>(i), static_cast<std::uint32_t>(unit)};
    };
    append_one_forward_one_backward(
        result.passes[static_cast<std::size_t>(i)], result.micro_batches, n + params.stages - 1 - i,
        [&](int k) { return pass(PassKind::Forward, k); },
        [&](int k) { return pass(PassKind::Backward, k / n * n + n - 1 - k % n); });
  }
  return result;
}

double most(const ScheduleParams& params) {
  return static_cast<double>(params.slices + params.stages - 1) / params.slices;
}

}  // namespace

extern const Schedule schedule_seq1f1b = {
    .name = "seq1f1b",
    .description = "1F1B over slices of sequences",
    .constraints = "1 chunk per device",
    .source = "Sun et al., Seq1F1B, 2024 (arXiv 2406.03488), section 3",
    .traits = {.uses_slices = true},
    .check = check,
    .order = order,
    .most_activations = most,
    .in_plans = true,
    .in_search = true,
};

}  // namespace orrery::sim
