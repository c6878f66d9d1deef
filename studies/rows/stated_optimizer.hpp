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

// Whether the row says that no fp32 copy of the parameters exists: "pure bf16", "no fp32 master".
// PyTorch's optimizers keep moments in the type of the parameters then.
bool keeps_no_master(const Measurement& row);

}  // namespace orrery::studies
