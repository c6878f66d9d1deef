// SPDX-License-Identifier: Apache-2.0
#include "search/packed_search.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/interrupt.hpp"
#include "base/parallel.hpp"
#include "search/packed_layouts.hpp"
#include "search/packed_tries.hpp"
#include "search/tree/drawing.hpp"
#include "search/tree/time_limit.hpp"

namespace orrery::search {
namespace {

// The schedule that is named; "" for groups of ranks.
std::string pipeline_of(const Constraints& constraints) {
  for (const std::string& name : constraints.named_schedules()) {
    if (!sim::find_schedule(name, "--schedule").traits.packs_sequences) {
      return name;
    }
  }
  return "";
}

// Numbers that packs leave no choice of.
void check_packed(const Constraints& constraints, const std::string& pipeline) {
  for (const char* field : {"micro_batch", "chunks", "slices", "cp", "ep"}) {
    if (!constraints.admits(field, 1)) {
      bad_input("--lengths", fmt::format("{} of packs is 1", field),
                fmt::format("leave {} out of the constraints", field));
    }
  }
  if (pipeline.empty()) {
    return;
  }
  const sim::Schedule& schedule = sim::find_schedule(pipeline, "--schedule");
  const auto takes = [&](int chunks) {
    return schedule.check({.stages = 2, .micro_batches = 4, .chunks = chunks}).empty();
  };
  if (!takes(1) && takes(2)) {
    bad_input("--schedule",
              fmt::format("\"{}\" needs model chunks, and packs are searched with one chunk per "
                          "device",
                          pipeline),
              "name \"dynapipe\", or state packs in a plan of your own");
  }
}

// What two searches have to agree on.
std::vector<InputHash> inputs_of(const plan::Plan& base, const Options& options,
                                 const std::vector<std::int64_t>& lengths) {
  std::vector<InputHash> inputs = plan_hashes(base);
  inputs.push_back({"--space", hash_of("packs")});
  inputs.push_back({"--lengths", hash_of(fmt::format("{}", fmt::join(lengths, " ")))});
  inputs.push_back(asked_hash(options.constraints));
  inputs.push_back({"--top", hash_of(fmt::format("{}", options.top))});
  return inputs;
}

}  // namespace

Outcome search_packed(const plan::Plan& base, const Options& options,
                      const std::vector<std::int64_t>& lengths) {
  TimeLimit limit(options.time_limit, !options.resume.empty());
  const std::string pipeline = pipeline_of(options.constraints);
  check_packed(options.constraints, pipeline);
  const std::vector<plan::Plan> layouts =
      pipeline.empty() ? group_layouts(base, options.constraints)
                       : pipeline_layouts(base, options.constraints, pipeline);
  if (layouts.empty()) {
    bad_input("--lengths",
              fmt::format("no tensor-parallel degree divides heads and widths{}",
                          pipeline.empty() ? fmt::format(" and leaves at most {} data ranks, which "
                                                         "groups are made of",
                                                         kMostPackedRanks)
                                           : fmt::format(" in at most {} replicas, of a sequence "
                                                         "each, within the constraints",
                                                         base.batch)),
              "take a smaller cluster, or leave out constraints on tp, pp, dp, zero and recompute");
  }
  PackedTries tries(layouts, lengths, !pipeline.empty());
  KeptState kept(options, Progress::Packed, [&] { return inputs_of(base, options, lengths); });
  if (const std::optional<std::string> bytes = kept.read()) {
    ByteReader in(*bytes, options.resume);
    tries.read(in);
    in.end();
  }
  const auto save = [&] { kept.save([&](ByteWriter& out) { tries.write(out); }); };
  const auto is_stopped = [&] { return options.stop && options.stop(); };
  const auto is_interrupted = [&] { return interrupted() || is_stopped(); };
  tries.begin(options.jobs, kept, [&](bool found) {  // a limit on time waits for a first plan
    const bool is_over = found && limit.is_over();
    limit.came_forward();  // by the layout that is asked next
    return is_interrupted() || is_over;
  });
  save();
  if (tries.unexplored() > 0) {
    kept.close();  // of all layouts others may be the fastest
  }
  bool cut = tries.unexplored() > 0;
  Drawing rest(options, limit.elapsed());  // after an early end, too, what was found is listed
  while (std::ssize(tries.taken()) <= options.top) {
    if (!tries.taken().empty() && (is_stopped() || rest.is_over())) {
      cut = true;
      break;
    }
    if (!tries.take_fastest(base.memory_reserve, options.jobs)) {
      break;
    }
    save();
  }
  Outcome outcome;
  outcome.interrupted = cut && is_interrupted();
  outcome.plans = static_cast<std::int64_t>(layouts.size());
  outcome.infeasible = outcome.pruned = tries.infeasible();
  outcome.unexplored = tries.unexplored();
  outcome.timed_out = cut && !outcome.interrupted;
  outcome.simulated = outcome.plans - outcome.infeasible - outcome.unexplored;
  std::vector<Found> fitting = tries.taken();
  parallel_for(fitting.size(), options.jobs, [&](std::size_t index) {
    Found& one = fitting[index];
    one.simulation = plan::simulate(one.plan, {.interval_draws = options.interval_draws,
                                               .stop_draws = [&] { return rest.is_over(); }});
  });
  if (!fitting.empty()) {
    outcome.best = std::move(fitting.front());
    outcome.alternatives.assign(std::make_move_iterator(fitting.begin() + 1),
                                std::make_move_iterator(fitting.end()));
  }
  outcome.gap_fraction = outcome.best ? 1 : 0;  // no bound on other packs
  outcome.closest_overflow = "no packs fit the memory of any layout";
  outcome.search_time = limit.elapsed();
  return outcome;
}

}  // namespace orrery::search
