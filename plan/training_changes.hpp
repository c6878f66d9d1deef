// SPDX-License-Identifier: Apache-2.0
// What makes training with a plan another one than without: gradients of parameters that are out of
// date, and traffic that is rounded to fewer bits than what reads it.
#pragma once

#include <span>
#include <string>

#include "plan/plan.hpp"

namespace orrery::plan {

// Whether an optimizer on host or disk works under the next iteration, whose gradients so are of
// parameters that are an update old.
bool updates_late(const Plan& plan);

// Whether this flag of `execution` rounds values to fewer bits than they have where they are used.
// Products in 8 or 4 bits round weights and tokens as much in any case.
bool is_lossy(bool Execution::*flag, DType precision);
// Flags that may be.
std::span<bool Execution::*const> lossy_flags();

// ", parameters gathered in 8 bits, updates a step late"; "" where training is the same.
std::string training_changes_text(const Plan& plan);

}  // namespace orrery::plan
