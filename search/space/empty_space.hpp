// SPDX-License-Identifier: Apache-2.0
// Why no plan satisfies a set of constraints, or none has one of the schedules that it names.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "search/space/constraints.hpp"

namespace orrery::search {

// Throws Error naming what was fixed together and, where dropping one of them opens the space,
// that one.
[[noreturn]] void explain_empty_space(const plan::Plan& base, const Constraints& constraints);

// Of several named schedules those that no plan has where others have some, and what they ask for
// where that is known: "mine: lists of 4 micro-batches do not fit 16: ...". Of schedules that are
// alike on one stage one has the plans.
std::vector<std::string> schedules_without_plans(const plan::Plan& base,
                                                 const Constraints& constraints);

// Error where what is forbidden alone leaves no value of one field, whatever else is asked for.
// `has_plan` says whether constraints leave any; `problem` names network, cluster and batch.
void check_forbidden(const Constraints& constraints,
                     const std::function<bool(const Constraints&)>& has_plan,
                     const std::string& problem);

}  // namespace orrery::search
