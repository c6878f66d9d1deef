// SPDX-License-Identifier: Apache-2.0
// Where LayerPipe runs the tasks of layers: arcs of the loop F_0 .. F_n, B_n W_n .. B_0 W_0, or
// whole layers, whichever has the smaller largest load.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/schedule.hpp"

namespace orrery::sim {

// By layer.
struct LayerArcs {
  std::vector<std::uint16_t> forwards;  // devices
  std::vector<std::uint16_t> gradients;
  std::vector<std::uint16_t> weight_grads;
  // Micro-batches that a device's list is further with forwards than with gradients: none on arcs,
  // where forwards and gradients of a layer are on devices of their own, or one after the other.
  std::vector<int> ahead;
};
LayerArcs layer_arcs(const ScheduleParams& params);

}  // namespace orrery::sim
