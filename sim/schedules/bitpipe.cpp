// SPDX-License-Identifier: Apache-2.0
// Chimera's two directions, each down and up the devices: four chunks per device. Within a unit of
// p micro-batches forwards and backwards alternate; between units the backwards of one and the
// forwards of the next. Idle p - 2 chunk passes when F = B.
#include <algorithm>
#include <array>
#include <vector>

#include "sim/orders/bidirectional.hpp"
#include "sim/orders/order_blocks.hpp"
#include "sim/schedule.hpp"

namespace orrery::sim {
namespace {

Refusal check(const ScheduleParams& params) {
  return first_broken({check_basics(params), check_own_warm_up(params), check_chunks(params, 2),
                       check_even_stages(params),
                       check_two_directions(params, params.stages, params.stages)});
}

struct Step {
  int chunk;  // 0, 2: first and second half of direction 0; 1, 3: of direction 1
  int unit;
};

// The order in which a device meets the chunks in one unit of p micro-batches.
std::vector<Step> steps_of(int half, int q, const std::array<int, 4>& x) {
  std::vector<Step> steps;
  for (int k = 0; k < q; ++k) {
    steps.push_back({x[0], k});
  }
  for (int k = 0; k < half - q; ++k) {
    steps.insert(steps.end(), {{x[1], k}, {x[0], k + q}});
  }
  for (int k = 0; k < q; ++k) {
    steps.insert(steps.end(), {{x[1], k + half - q}, {x[3], k}});
  }
  for (int k = 0; k < half - q; ++k) {
    steps.insert(steps.end(), {{x[2], k}, {x[3], k + q}});
  }
  for (int k = 0; k < q; ++k) {
    steps.push_back({x[2], k + half - q});
  }
  return steps;
}

PipelineOrder order(const ScheduleParams& params) {
  const int p = params.stages;
  const int half = p / 2;
  PipelineOrder result = two_directions(params, 2);
  for (int r = 0; r < p; ++r) {
    const int i = r < half ? 0 : 1;
    const int q = r < half ? half - r : r - half + 1;
    const std::vector<Step> forward = steps_of(half, q, {i, 1 - i, 2 + i, 3 - i});
    const std::vector<Step> backward = steps_of(half, q, {2 + i, 3 - i, i, 1 - i});
    const auto add = [&](PassKind kind, int k) {
      const Step& step =
          (kind == PassKind::Forward ? forward : backward)[static_cast<std::size_t>(k % (2 * p))];
      add_pass(result, kind, stage_of(result, step.chunk % 2, step.chunk / 2, r),
               step.unit + k / (2 * p) * half);
    };
    append_one_forward_one_backward_of(params.micro_batches * 2, p + half + std::min(r, p - 1 - r),
                                       2 * p, add);
  }
  return result;
}

}  // namespace

extern const Schedule schedule_bitpipe = {
    .name = "bitpipe",
    .description = "two directions, each on a V placement",
    .constraints = "stages even; micro-batches a multiple of stages; 2 chunks per device",
    .source = "Wu et al., BitPipe, 2024 (arXiv 2410.19367), section 3",
    .traits = {.uses_chunks = true, .two_directions = true},
    .check = check,
    .order = order,
    .most_activations = one_per_stage,
    .in_plans = true,
    .in_search = true,
};

}  // namespace orrery::sim
