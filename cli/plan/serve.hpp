// SPDX-License-Identifier: Apache-2.0
// `orrery plan NETWORK CLUSTER --serve REQUESTS`: the search of serving plans.
#pragma once

#include <string>

#include "cli/command/common.hpp"
#include "plan/plan.hpp"
#include "search/serving_search.hpp"

namespace orrery::cli {

class Command;

struct ServeOptions {
  std::string requests;
  std::string first_token_limit;
  std::string output_token_limit;
};
void add_serve_options(const Command& command, ServeOptions& options);

struct ServeFiles {
  std::string plan;
  std::string report;
};
// `base` has network, cluster, profile and precision, `how` all but the limits. Returns the exit
// code.
int plan_serving(plan::Plan base, const ServeOptions& options, search::ServingSearch how,
                 const ServeFiles& files, const OutputOptions& output);

}  // namespace orrery::cli
