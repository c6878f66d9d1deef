// SPDX-License-Identifier: Apache-2.0
// All plans of a space that fit, one after the other, in the order of the space: what planners look
// at that rank whole plans by a rule of their own instead of searching.
#pragma once

#include <cstdint>

#include "plan/simulation/simulate.hpp"
#include "search/space/space.hpp"

namespace orrery::search {

// Calls visit(group, plan), whose plan changes with the next call. Returns the number of plans that
// were looked at, those that do not fit included: all, unless stop() ends it.
template <class Stop, class Visit>
std::int64_t for_fitting_plans(const Space& space, plan::Simulator& simulator, Stop stop,
                               Visit visit) {
  std::int64_t plans = 0;
  plan::Plan plan = space.base();
  for (const Group& group : space.groups()) {
    for (const Member& member : space.members(group)) {
      if (stop()) {
        return plans;
      }
      space.configure(group, member, plan);
      ++plans;
      if (simulator.fits(plan).fits) {
        visit(group, plan);
      }
    }
  }
  return plans;
}

}  // namespace orrery::search
