// SPDX-License-Identifier: Apache-2.0
#include "sim/orders/bidirectional.hpp"

#include <fmt/format.h>

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

std::string check_two_directions(const ScheduleParams& params, int least, int of) {
  if (!check_sizes(params).empty()) {
    return "";  // named elsewhere
  }
  const int m = params.micro_batches;
  if (m % 2 != 0) {
    return fmt::format(
        "micro-batches must be even, half for each direction, not {}: the next is "
        "{}",
        m, std::int64_t{m} + 1);
  }
  if (m < least) {
    return fmt::format("at least {} micro-batches are required, not {}", least, m);
  }
  return check_multiple(params, of, "one round of each direction");
}

}  // namespace orrery::sim
