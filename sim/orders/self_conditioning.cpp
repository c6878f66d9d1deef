// SPDX-License-Identifier: Apache-2.0
#include "sim/orders/self_conditioning.hpp"

#include "sim/orders/order_blocks.hpp"

namespace orrery::sim {

// A step of a device is a forward, a backward and an extra forward. These are p units ahead of the
// forwards: so many steps after it has begun a unit is back at the first device.
PipelineOrder self_conditioned_1f1b(int stages, int micro_batches, bool doubled) {
  PipelineOrder order = bare_order(stages, 1);
  add_chain(order, device_run(0, stages), {.units = micro_batches});
  const int extra =
      add_chain(order, device_run(0, stages), {.units = micro_batches, .forward_only = true});
  add_edge(order, Lane::Forward, extra + stages - 1, Lane::Forward, 0);
  for (int i = 0; i < stages; ++i) {
    const int after = stages - i;
    const int ahead = (doubled ? 2 * after - 1 : after) - 1;  // of forwards before backwards
    const auto add = [&](PassKind kind, int stage, int unit) {
      if (unit >= 0 && unit < micro_batches) {
        add_pass(order, kind, stage, unit);
      }
    };
    for (int step = 0; step < micro_batches + stages + ahead; ++step) {
      add(PassKind::Forward, i, step - stages);
      add(PassKind::Backward, i, step - stages - ahead);
      add(PassKind::Forward, extra + i, step);
    }
  }
  return order;
}

}  // namespace orrery::sim
