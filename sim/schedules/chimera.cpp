// SPDX-License-Identifier: Apache-2.0
// Stage s of direction 0 on device s, of direction 1 on device p - 1 - s. In units of p
// micro-batches the passes of both directions fall into different slots; a unit begins 2 p slots
// after the last. Idle p - 2 passes when F = B; parameters twice, gradients of both copies are
// summed.
#include <algorithm>
#include <vector>

#include "sim/orders/bidirectional.hpp"
#include "sim/orders/order_blocks.hpp"
#include "sim/schedule.hpp"

namespace orrery::sim {
namespace {

std::string check(const ScheduleParams& params) {
  return first_broken({check_basics(params), check_own_warm_up(params), check_one_chunk(params),
                       check_even_stages(params),
                       check_two_directions(params, params.stages, params.stages)});
}

struct Slot {
  int at;
  PassKind kind;
  int stage;
  int unit;
  bool operator<(const Slot& other) const { return at < other.at; }
};

PipelineOrder order(const ScheduleParams& params) {
  const int p = params.stages;
  PipelineOrder result = two_directions(params, 1);
  for (int device = 0; device < p; ++device) {
    std::vector<Slot> slots;
    for (int unit = 0; unit < params.micro_batches; unit += p) {  // half in each direction
      for (int direction = 0; direction < 2; ++direction) {
        const int along = direction == 0 ? device : p - 1 - device;
        const int stage = stage_of(result, direction, 0, device);
        for (int j = 0; j < p / 2; ++j) {
          const int first = 2 * (unit + j);  // slot on the first device of the direction
          slots.push_back({first + along, PassKind::Forward, stage, unit / 2 + j});
          slots.push_back({first + 2 * p - 1 - along, PassKind::Backward, stage, unit / 2 + j});
        }
      }
    }
    std::sort(slots.begin(), slots.end());
    for (const Slot& slot : slots) {
      add_pass(result, slot.kind, slot.stage, slot.unit);
    }
  }
  return result;
}

}  // namespace

extern const Schedule schedule_chimera = {
    .name = "chimera",
    .description = "two copies of the model in opposite directions",
    .constraints = "1 chunk per device; stages even; micro-batches a multiple of stages",
    .source = "Li and Hoefler, Chimera, SC 2021 (arXiv 2107.06925), section 3",
    .splits_backward = false,
    .uses_chunks = false,
    .synchronous = true,
    .check = check,
    .order = order,
    .most_activations = one_per_stage,
    .two_directions = true,
    .in_plans = true,
    .in_search = true,
};

}  // namespace orrery::sim
