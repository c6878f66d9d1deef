// SPDX-License-Identifier: Apache-2.0
// Optimizers other than Adam with 32-bit moments, in the words of a row.
#pragma once

#include <optional>
#include <string>

#include "studies/rows/measurement.hpp"

namespace orrery::studies {

struct StatedOptimizer {
  std::string name;
  int state_bytes = 0;  // of a parameter, beside its master copy
};

// In `variant` or `notes`; nothing where they name none.
std::optional<StatedOptimizer> stated_optimizer(const Measurement& row);

}  // namespace orrery::studies
