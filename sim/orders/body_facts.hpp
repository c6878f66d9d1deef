// SPDX-License-Identifier: Apache-2.0
// What follows from the blocks of a repeating body (sim/orders/periodic_body.hpp) for every period.
#pragma once

#include <cstddef>
#include <vector>

#include "sim/orders/periodic_body.hpp"

namespace orrery::sim {

struct BodyFacts {
  BodyFacts(const std::vector<BodyBlock>& of, int devices, const BodyLimits& given);
  // Whether the first block may start at 0 and all others within a period of when they are ready:
  // nothing comes before the first, and no device could need memory later than that.
  bool narrow_is_all() const { return last_root == 0 && binding.empty(); }

  const std::vector<BodyBlock>& blocks;
  const BodyLimits& limits;
  std::vector<std::vector<std::size_t>> on;  // blocks, per device
  std::vector<int> tail;             // from a block's start to the end of all that wait for it
  std::vector<bool> late;            // a later start may help a device's memory
  std::vector<std::size_t> binding;  // devices that could hold more than the cap
  std::size_t last_root = 0;         // of the blocks that wait for nothing
};

}  // namespace orrery::sim
