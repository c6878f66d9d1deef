// SPDX-License-Identifier: Apache-2.0
// A plan in a few words, for tables and pictures.
#pragma once

#include <string>

#include "plan/plan.hpp"

namespace orrery::plan {

// The parallel layout: "tp 8, pp 4, dp 2, ...", in terms of --fix.
std::string layout_text(const Plan& plan);

}  // namespace orrery::plan
