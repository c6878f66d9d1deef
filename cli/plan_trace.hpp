// SPDX-License-Identifier: Apache-2.0
// The Chrome trace of one iteration of a plan: one process per pipeline stage with its passes,
// live memory, arrows along transfers, and what follows the pipeline. Linear in the passes, refused
// beyond two million.
#pragma once

#include <string>

#include "plan/plan.hpp"

namespace orrery::cli {

std::string plan_trace_text(const plan::Plan& plan);

}  // namespace orrery::cli
