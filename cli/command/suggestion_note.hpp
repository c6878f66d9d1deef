// SPDX-License-Identifier: Apache-2.0
// What a plan may gain from and no search tries.
#pragma once

#include "cli/command/common.hpp"
#include "plan/simulation/suggestions.hpp"

namespace orrery::cli {

// A line each on standard error, unless quiet; the list for --json.
Json note_suggestions(const plan::Plan& plan, const plan::Simulation& simulation,
                      const OutputOptions& output);

}  // namespace orrery::cli
