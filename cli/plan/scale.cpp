// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/scale.hpp"

#include <memory>

#include "base/error.hpp"
#include "base/quantity_text.hpp"
#include "base/text.hpp"
#include "cli/command/command.hpp"
#include "cli/command/command_line.hpp"
#include "cli/command/common.hpp"
#include "search/tree/mpi_ranks.hpp"

namespace orrery::cli {

void add_scale_options(const Command& command, ScaleOptions& options) {
  command.add_option("--checkpoint", options.checkpoint,
                     "file that keeps the state of the search, for --resume; not of recommendation "
                     "networks, whose search ends by itself");
  command.add_option("--checkpoint-every", options.checkpoint_every,
                     "seconds, or with a unit, between two checkpoints (10)");
  command.add_option("--resume", options.resume,
                     "go on from a checkpoint, and keep it up to date unless --checkpoint names "
                     "another");
  command.add_flag("--mpi", options.mpi,
                   "one of the processes of an MPI launcher (found out by itself under mpirun)");
  command.add_option("--project-ranks", options.project_ranks,
                     "also simulate this search on up to so many ranks");
}

void check_checkpoints_alone(const ScaleOptions& options, std::string_view what) {
  if (options.mpi || !options.project_ranks.empty()) {
    bad_input(what, "--project-ranks and --mpi are for one search of training plans",
              "it takes --checkpoint and --resume");
  }
}

void check_no_projection(const ScaleOptions& options) {
  if (!options.project_ranks.empty()) {
    bad_input("--project-ranks", "only searches of the homogeneous space are projected",
              "leave it out, or use --space homogeneous");
  }
}

void keep_checkpoints(const ScaleOptions& options, search::StateFiles& how) {
  how.checkpoint = options.checkpoint.empty() ? options.resume : options.checkpoint;
  how.resume = options.resume;
  if (!options.checkpoint_every.empty()) {
    if (how.checkpoint.empty()) {
      bad_input("--checkpoint-every", "there is no checkpoint", "name a file with --checkpoint");
    }
    how.checkpoint_every = parse_time(options.checkpoint_every, "--checkpoint-every");
  }
  if (how.checkpoint == "-") {
    bad_input("--checkpoint", "a checkpoint is a file", "not standard output");
  }
  check_writable(how.checkpoint);
}

LongSearch search_long(const plan::Plan& base, search::Options how, const ScaleOptions& options,
                       search::Ranks* ranks,
                       const std::function<void(const search::ProgressReport&)>& progress) {
  keep_checkpoints(options, how);
  how.ranks = ranks;
  LongSearch result;
  if (options.project_ranks.empty()) {
    result.outcome = search::search(base, how, progress);
    return result;
  }
  const auto most =
      static_cast<int>(parse_integer(options.project_ranks, "--project-ranks", 1, 4096));
  std::vector<search::BatchRecord> record;
  how.record = &record;
  result.outcome = search::search(base, how, progress);
  result.projections = search::project(record, most);
  return result;
}

int run_with_ranks(const ScaleOptions& options, const OutputOptions& output,
                   const std::function<int(search::Ranks*)>& lead,
                   const std::function<int(search::Ranks&)>& follow) {
  std::unique_ptr<search::Ranks> ranks;
  try {
    ranks = search::open_mpi(options.mpi);
  } catch (const Error&) {
    if (search::launched_rank() > 0) {
      return kBadInput;  // rank 0 says it
    }
    throw;
  }
  if (ranks && ranks->size() == 1) {
    note_all({"orrery: --mpi: this process is the only rank (start several: mpirun -n COUNT "
              "orrery plan ...)"},
             output);
  }
  return ranks && ranks->rank() > 0 ? follow(*ranks) : lead(ranks.get());
}

}  // namespace orrery::cli
