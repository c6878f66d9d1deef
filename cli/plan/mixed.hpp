// SPDX-License-Identifier: Apache-2.0
// `orrery plan` and `orrery simulate` on clusters of several kinds of nodes
// (docs/mixed-clusters.md).
#pragma once

#include "cli/plan/options.hpp"
#include "plan/mixed/plan.hpp"

namespace orrery::cli {

// Error where an option is for clusters of one kind of nodes alone.
void check_mixed_options(const PlanOptions& options);
// Exit codes as of the commands; the options are checked.
int plan_mixed(const PlanOptions& options);
int simulate_mixed(const plan::MixedPlan& plan, const std::string& where,
                   const std::string& report_path, const OutputOptions& output);

}  // namespace orrery::cli
