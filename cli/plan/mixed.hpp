// SPDX-License-Identifier: Apache-2.0
// `orrery plan` and `orrery simulate` on clusters of several kinds of nodes
// (docs/mixed-clusters.md).
#pragma once

#include "cli/plan/options.hpp"
#include "plan/mixed/plan.hpp"

namespace orrery::cli {

// Exit codes as of the commands. Error for options that mixed clusters do not have.
int plan_mixed(const PlanOptions& options);
int simulate_mixed(const plan::MixedPlan& plan, const std::string& where,
                   const std::string& report_path, const OutputOptions& output);

}  // namespace orrery::cli
