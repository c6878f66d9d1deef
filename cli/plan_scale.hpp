// SPDX-License-Identifier: Apache-2.0
// Options of `orrery plan` for long searches: checkpoints, several machines.
#pragma once

#include <functional>
#include <string>

#include "search/ranks.hpp"

namespace CLI {
class App;
}

namespace orrery::cli {

struct ScaleOptions {
  std::string checkpoint;
  std::string checkpoint_every;
  std::string resume;
  bool mpi = false;
  bool any() const { return !(checkpoint + checkpoint_every + resume).empty() || mpi; }
};
void add_scale_options(CLI::App& command, ScaleOptions& options);
void apply_scale_options(const ScaleOptions& options, search::Options& how);

// Runs `lead`, with the other processes where an MPI launcher started several, or works for the
// process that does. Only that one prints.
int run_with_ranks(const ScaleOptions& options, const std::function<int(search::Ranks*)>& lead,
                   const std::function<int(search::Ranks&)>& follow);

// "90" is seconds, "2 min" is said with its unit; empty: 0.
Seconds parse_time(const std::string& text, const char* option);

}  // namespace orrery::cli
