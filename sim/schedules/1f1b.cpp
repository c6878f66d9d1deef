// SPDX-License-Identifier: Apache-2.0
// One forward, one backward with a flush per batch (PipeDream-Flush, early backward of DAPPLE).
// Stage i runs min(p - i, m) forwards ahead, or with the doubled warm-up min(2(p - i) - 1, m),
// which hides the transfer latency for almost twice the activations; under a cap D no more than
// that (DAPPLE's policies A and B). Time (m + p - 1)(F + Bf) without latency or cap.
#include <algorithm>

#include "sim/schedule.hpp"

namespace orrery::sim {
namespace {

Refusal check(const ScheduleParams& params) {
  ScheduleParams without = params;
  without.cap = 0;
  return first_broken({check_basics(without), check_one_chunk(params),
                       check_warm_up(params, 1, "0: p - i forwards, 1: doubled"),
                       check_cap(params, 1)});
}

// Forwards of a device before its first backward, with so many devices from it to the last.
int ahead_of(const ScheduleParams& params, int after) {
  const int ahead = params.warm_up == 1 ? 2 * after - 1 : after;
  return params.cap == 0.0 ? ahead : static_cast<int>(std::min<double>(ahead, params.cap));
}

PipelineOrder order(const ScheduleParams& params) {
  PipelineOrder result = empty_order(params, loop_placement(params), 2);
  for (int stage = 0; stage < params.stages; ++stage) {
    const auto pass = [stage](PassKind kind, int k) {
      return Pass{kind, static_cast<std::uint16_t>(stage), static_cast<std::uint32_t>(k)};
    };
    append_one_forward_one_backward(
        result.passes[static_cast<std::size_t>(stage)], params.micro_batches,
        ahead_of(params, params.stages - stage), [&](int k) { return pass(PassKind::Forward, k); },
        [&](int k) { return pass(PassKind::Backward, k); });
  }
  return result;
}

double most(const ScheduleParams& params) {
  return std::min(ahead_of(params, params.stages), params.micro_batches);
}

}  // namespace

extern const Schedule schedule_1f1b = {
    .name = "1f1b",
    .description = "one forward, one backward, with a flush per batch",
    .constraints = "1 chunk per device; warm-up 0 or 1 (doubled); cap at least 1",
    .source =
        "Narayanan et al., PipeDream-2BW, ICML 2021 (arXiv 2006.09503), section 3.2; "
        "Fan et al., DAPPLE, PPoPP 2021 (arXiv 2007.01045), section 3",
    .check = check,
    .order = order,
    .most_activations = most,
    .in_plans = true,
    .in_search = true,
};

}  // namespace orrery::sim
