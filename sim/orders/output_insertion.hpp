// SPDX-License-Identifier: Apache-2.0
// Inserts the passes of an output layer that is cut over all devices (sim/orders/output_layer.hpp)
// into the lists of a base order, each where it can start first, as if all passes were decided in
// the order of their starts. Devices are run in rounds: O(devices) for one, in which nothing that
// layers start reaches another device. What repeats is copied (sim/orders/list_repetition.hpp).
// Deterministic.
#pragma once

#include "sim/schedule.hpp"

namespace orrery::sim {

// With barriers that the base cannot run with, passes are missing.
PipelineOrder insert_output_layer(const PipelineOrder& base, const ScheduleParams& params,
                                  int barriers);

}  // namespace orrery::sim
