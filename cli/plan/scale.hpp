// SPDX-License-Identifier: Apache-2.0
// Options of `orrery plan` for long searches: checkpoints, several machines, projections.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/command/common.hpp"
#include "cli/command/together.hpp"
#include "search/tree/projection.hpp"
#include "search/tree/ranks.hpp"

namespace orrery::cli {

class Command;

struct ScaleOptions {
  std::string checkpoint;
  std::string checkpoint_every;
  std::string resume;
  bool mpi = false;
  std::string project_ranks;
  std::vector<Given> given() const {
    return {{"--checkpoint", !checkpoint.empty()},
            {"--checkpoint-every", !checkpoint_every.empty()},
            {"--resume", !resume.empty()},
            {"--mpi", mpi},
            {"--project-ranks", !project_ranks.empty()}};
  }
};
void add_scale_options(const Command& command, ScaleOptions& options);
// Error when any but checkpoints is, beside `what` was asked for.
void check_checkpoints_alone(const ScaleOptions& options, std::string_view what);
// Error when a projection is asked for.
void check_no_projection(const ScaleOptions& options);
// What `options` say of checkpoints.
void keep_checkpoints(const ScaleOptions& options, search::StateFiles& how);

// A search of the homogeneous space with all of that.
struct LongSearch {
  search::Outcome outcome;
  std::vector<search::Projection> projections;  // where asked for
};
LongSearch search_long(const plan::Plan& base, search::Options how, const ScaleOptions& options,
                       search::Ranks* ranks,
                       const std::function<void(const search::ProgressReport&)>& progress);

// Runs `lead`, with the other processes where an MPI launcher started several, or works for the
// process that does. Only that one prints. Says, unless quiet, where --mpi found no other process.
int run_with_ranks(const ScaleOptions& options, const OutputOptions& output,
                   const std::function<int(search::Ranks*)>& lead,
                   const std::function<int(search::Ranks&)>& follow);

}  // namespace orrery::cli
