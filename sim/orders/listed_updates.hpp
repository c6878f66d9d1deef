// SPDX-License-Identifier: Apache-2.0
// Optimizer passes of lists that a user wrote. O(passes).
#pragma once

#include <string>

#include "sim/schedule.hpp"

namespace orrery::sim {

// "" when updates of every virtual stage come in turn, each after the gradients that it uses, and
// forwards find the parameters that the order's rule of versions gives them.
std::string wrong_update(const PipelineOrder& order);

}  // namespace orrery::sim
