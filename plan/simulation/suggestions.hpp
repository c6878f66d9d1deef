// SPDX-License-Identifier: Apache-2.0
// Changes of a plan's execution that would shorten its iteration and that no search makes by
// itself, since whether the framework at hand can do them is not known.
#pragma once

#include <string>
#include <vector>

#include "plan/simulation/simulate.hpp"

namespace orrery::plan {

struct Suggestion {
  std::string field;       // of `execution`, a flag that is false: "deduplicated_dispatch"
  std::string gain;        // what it is: "send a token once to each node, as DeepEP does"
  Seconds waited;          // of the iteration, for what it shortens
  Seconds iteration_time;  // of the plan with that flag alone changed, simulated
};

// Of a training plan and its simulation. Where tokens are waited for on their way between experts
// on several nodes, for a twentieth of the iteration or more, `deduplicated_dispatch`. Nothing
// where the changed plan is no faster or does not fit and this one does. One simulation more.
std::vector<Suggestion> suggestions(const Plan& plan, const Simulation& simulation);

// One line each.
std::string to_text(const Suggestion& suggestion, const Simulation& simulation);

}  // namespace orrery::plan
