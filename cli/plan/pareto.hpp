// SPDX-License-Identifier: Apache-2.0
// `orrery plan --pareto memory|gpus|cost`: the frontier as table, JSON and picture.
#pragma once

#include <string>

#include "cli/command/common.hpp"
#include "cli/plan/scale.hpp"
#include "search/pareto.hpp"

namespace orrery::cli {

class Command;

struct ParetoOptions {
  std::string against;  // empty: no frontier
  std::string picture_path;
};
void add_pareto_options(const Command& command, ParetoOptions& options);

// Prints the frontier, writes its fastest plan and the picture; the exit code.
int plan_pareto(const ParetoOptions& pareto, const ScaleOptions& scale,
                const search::Problem& problem, const plan::Plan& base, search::Options how,
                const std::string& plan_path, const OutputOptions& output);

}  // namespace orrery::cli
