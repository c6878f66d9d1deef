// SPDX-License-Identifier: Apache-2.0
// Placements of schedules that run two copies of the model in opposite directions on the same
// devices: chain 0 begins on device 0, chain 1 on the last device.
#pragma once

#include "sim/schedule.hpp"

namespace orrery::sim {

// Half the micro-batches in each direction. `turns` 1: a straight line; 2: a V.
PipelineOrder two_directions(const ScheduleParams& params, int turns);

// The virtual stage of `chunk` (0 .. turns - 1, along the chain) on a device in a direction.
int stage_of(const PipelineOrder& order, int direction, int chunk, int device);

// One turn, in units of p slots per direction that begin 2 p slots after each other, so that the
// passes of both directions fall into different slots. A forward slot holds one block of `together`
// micro-batches, a backward slot their backwards.
PipelineOrder chimera_order(const ScheduleParams& params, int together);

// `ahead` forwards; per unit of `length` each: one forward and one backward in turn, backwards
// alone, then forwards of the next unit with the last backwards and alone.
template <typename Add>
void append_one_forward_one_backward_of(int total, int ahead, int length, Add add) {
  int f = 0;
  int b = 0;
  const auto times = [&](int count, bool forward, bool backward) {
    for (int k = 0; k < count; ++k) {
      if (forward && f < total) {
        add(PassKind::Forward, f++);
      }
      if (backward && b < total) {
        add(PassKind::Backward, b++);
      }
    }
  };
  const int both = length - ahead;
  times(ahead, true, false);
  for (int unit = 0; unit < total / length; ++unit) {
    times(both, true, true);
    if (unit + 1 < total / length) {
      times(ahead - both + 1, false, true);
      times(both - 1, true, true);
      times(ahead - both + 1, true, false);
    } else {
      times(length, false, true);
    }
  }
}

// Even micro-batches, at least `least` of them and, with `of` > 1, a multiple of it. `least` is one
// that meets all of this.
Refusal check_two_directions(const ScheduleParams& params, int least, int of);

}  // namespace orrery::sim
