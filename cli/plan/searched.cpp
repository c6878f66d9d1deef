// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/searched.hpp"

#include "base/error.hpp"
#include "base/interrupt.hpp"
#include "base/progress.hpp"
#include "cli/command/command_line.hpp"
#include "cli/plan/packed.hpp"
#include "cli/report/per_block_report.hpp"
#include "cli/report/plan_report.hpp"
#include "search/packed_search.hpp"
#include "search/per_block/worker_pool.hpp"

namespace orrery::cli {
namespace {

// Nothing when no such plan exists.
std::optional<search::Outcome> search_asynchronous(const plan::Plan& base, search::Options how,
                                                   search::Ranks* ranks) {
  how.constraints = how.constraints.asynchronous_alone();
  how.ranks = ranks;
  try {
    return search::search(base, how);
  } catch (const Error&) {  // an empty space
    return std::nullopt;
  }
}

}  // namespace

std::string Searched::text() const {
  const std::string all = per_block ? per_block_text(*per_block) : outcome_text(outcome());
  return apart && apart->best
             ? all + "\nAsynchronous schedules, whose training is not the same:\n" +
                   outcome_text(*apart)
             : all;
}

Json Searched::json() const {
  return per_block ? per_block_json(*per_block)
                   : outcome_json(outcome(), apart ? &*apart : nullptr);
}

Searched search_asked(const PlanOptions& options, const plan::Plan& base, search::Options how,
                      search::Ranks* ranks) {
  Progress progress("plan", options.output.quiet);
  const auto show = [&](const search::ProgressReport& report) {
    progress.update(-1, progress_text(report));
  };
  Searched searched;
  if (!options.lengths.empty()) {
    keep_checkpoints(options.scale, how);
    searched.spread.outcome = search::search_packed(base, how, read_lengths(options.lengths));
    return searched;
  }
  if (how.space == search::SpaceKind::PerBlock) {
    keep_checkpoints(options.scale, how);
    how.ranks = ranks;
    searched.per_block = search::search_per_block(base, how, show);
  } else {
    searched.spread = search_long(base, how, options.scale, ranks, show);
  }
  progress.finish();
  if (!searched.per_block && searched.outcome().best && how.constraints.asynchronous() &&
      !how.constraints.searches_asynchronous()) {
    searched.apart = search_asynchronous(base, how, ranks);
  }
  return searched;
}

int follow(const PlanOptions& options, search::Ranks& ranks) {
  install_interrupt_handler();
  bool asynchronous = false;
  const auto service = [&](search::SearchKind kind) {
    plan::Plan base = search::base_plan(problem_of(options));
    search::Options how = search_options(options);
    how.constraints.apply(base.execution);
    if (how.space == search::SpaceKind::PerBlock) {
      return search::per_block_service(kind, base, how);
    }
    if (asynchronous) {
      how.constraints = how.constraints.asynchronous_alone();
    }
    return search::homogeneous_service(base, how);
  };
  while (search::serve(ranks, service)) {
    asynchronous = true;
  }
  return kOk;
}

}  // namespace orrery::cli
