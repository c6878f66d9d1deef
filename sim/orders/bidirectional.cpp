// SPDX-License-Identifier: Apache-2.0
#include "sim/orders/bidirectional.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

#include "sim/orders/order_blocks.hpp"

namespace orrery::sim {

PipelineOrder two_directions(const ScheduleParams& params, int turns) {
  PipelineOrder order = bare_order(params.stages, turns);
  std::vector<std::uint16_t> device_of = zigzag_placement(params.stages, turns);
  const int half = params.micro_batches / 2;
  for (int direction = 0; direction < 2; ++direction) {
    add_chain(order, device_of, {.units = half, .first_unit = direction * half});
    for (std::uint16_t& device : device_of) {
      device = static_cast<std::uint16_t>(params.stages - 1 - device);
    }
  }
  return order;
}

int stage_of(const PipelineOrder& order, int direction, int chunk, int device) {
  const auto p = static_cast<int>(order.passes.size());
  const int along = direction == chunk % 2 ? device : p - 1 - device;
  return order.chains[static_cast<std::size_t>(direction)].first + chunk * p + along;
}

PipelineOrder chimera_order(const ScheduleParams& params, int together) {
  struct Slot {
    PassKind kind = PassKind::Forward;
    int stage = -1;  // nothing runs
    int unit = 0;    // first of those together
  };
  const int p = params.stages;
  const int blocks = (params.micro_batches + 2 * together - 1) / (2 * together);
  const auto begin_of = [p](int block) {  // slot on its first device
    return 2 * (block / (p / 2) * p + block % (p / 2));
  };
  std::vector<Slot> slots(static_cast<std::size_t>(begin_of(blocks - 1) + 2 * p));
  PipelineOrder result = two_directions(params, 1);
  result.extended = together > 1;
  for (int device = 0; device < p; ++device) {
    std::fill(slots.begin(), slots.end(), Slot{});
    for (int direction = 0; direction < 2; ++direction) {
      const int along = direction == 0 ? device : p - 1 - device;
      const int stage = stage_of(result, direction, 0, device);
      for (int block = 0; block < blocks; ++block) {
        Slot* const first = &slots[static_cast<std::size_t>(begin_of(block))];
        first[along] = {PassKind::Forward, stage, block * together};
        first[2 * p - 1 - along] = {PassKind::Backward, stage, block * together};
      }
    }
    std::vector<Pass>& list = result.passes[static_cast<std::size_t>(device)];
    list.reserve(2 * static_cast<std::size_t>(params.micro_batches));
    for (const Slot& slot : slots) {
      for (int k = 0; slot.stage >= 0 && k < together; ++k) {
        const bool joined = slot.kind == PassKind::Forward && k + 1 < together;
        list.emplace_back(slot.kind, static_cast<std::uint16_t>(slot.stage),
                          static_cast<std::uint32_t>(slot.unit + k), joined);
      }
    }
  }
  return result;
}

Refusal check_two_directions(const ScheduleParams& params, int least, int of) {
  if (!check_sizes(params).empty()) {
    return {};  // named elsewhere
  }
  if (Refusal few = check_fewest_micro_batches(params, least); !few.empty()) {
    return few;
  }
  return of > 1 ? check_multiple(params, std::lcm(2, of), "one round of each direction")
                : check_multiple(params, 2, "half for each direction");
}

}  // namespace orrery::sim
