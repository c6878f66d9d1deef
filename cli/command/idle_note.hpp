// SPDX-License-Identifier: Apache-2.0
// Stated choices that do nothing in a plan: nobody must take them for honoured.
#pragma once

#include "base/json.hpp"
#include "cli/command/common.hpp"
#include "plan/plan.hpp"
#include "search/space/constraints.hpp"

namespace orrery::cli {

// One line on standard error that names them, with what each needs.
void note_idle_fields(const plan::Plan& plan, const OutputOptions& output);

// The same of what --set changed alone.
void note_idle_settings(const plan::Plan& plan, const OutputOptions& output);

// The same for machines: [{"field", "needs"}].
Json idle_json(const plan::Plan& plan);

// The same of a plan that was found, and layout fields of --fix that it has no use for.
void note_idle_fixes(plan::Plan plan, const search::Constraints& constraints,
                     const OutputOptions& output);

}  // namespace orrery::cli
