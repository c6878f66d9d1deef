// SPDX-License-Identifier: Apache-2.0
#include "search/packed_search.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <iterator>
#include <numeric>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "base/parallel.hpp"
#include "plan/heads.hpp"
#include "plan/packs.hpp"
#include "search/packed_layouts.hpp"
#include "search/packed_pipelines.hpp"
#include "search/problems/sequence_groups.hpp"
#include "search/tree/drawing.hpp"
#include "search/tree/memory_check.hpp"

namespace orrery::search {
namespace {

constexpr std::int64_t kTokensOnRank = 8192;  // of the packs that costs are taken from
constexpr int kMoreMicroBatches = 3;          // tried beyond what memory needs

// Time of a pack: q (sum of squared lengths) / degree + l tokens / degree + constant.
struct DegreeCost {
  double quadratic = 0;
  double linear = 0;
  double constant = 0;
};

struct Measured {
  double time;
  double bytes;
};

Measured measure(const plan::Plan& plan, int degree, std::vector<std::int64_t> sequences) {
  const plan::Plan alone = plan::plan_of_pack(plan, {degree, std::move(sequences)});
  const plan::Simulation run = plan::simulate(alone, {.record_spans = true});
  return {to_seconds(run.passes.forward.front() + run.passes.backward.front()).value(),
          static_cast<double>(run.memory.front().total().value())};
}

class LayoutSearch {
 public:
  LayoutSearch(plan::Plan plan, const std::vector<std::int64_t>& lengths)
      : plan_(std::move(plan)), lengths_(lengths.begin(), lengths.end()) {}

  // Nothing when the longest sequence fits no group, or no packs do.
  std::optional<Found> run() {
    const models::NetworkSpec& spec = plan_.network.spec;
    const int tp = plan_.blocks.front().layout.tp;
    const auto is_usable = [&](int log_degree) {
      const int degree = 1 << log_degree;
      return plan_.dp % degree == 0 && plan::exchanges_heads(spec, std::int64_t{tp} * degree);
    };
    int degrees = 0;
    while (is_usable(degrees)) {
      ++degrees;
    }
    if (!fit_costs(degrees)) {
      return std::nullopt;
    }
    std::vector<std::vector<int>> sets = degree_sets(plan_.dp);
    std::erase_if(sets, [&](const std::vector<int>& set) { return set.front() >= degrees; });
    const double tokens = std::accumulate(lengths_.begin(), lengths_.end(), 0.0);
    const int least =
        std::max(1, static_cast<int>(std::ceil(tokens / (cost_.tokens_per_gpu * plan_.dp))));
    const BatchAssignment packs =
        assign_batch(lengths_, cost_, sets, least, least + kMoreMicroBatches);
    if (packs.micro_batches.empty()) {
      return std::nullopt;
    }
    tell(packs);
    Found found{plan_, plan::simulate(plan_)};
    return found.simulation.does_not_fit ? std::nullopt : std::optional(std::move(found));
  }

 private:
  // Three packs: one sequence, the same tokens in two, and half of them. Whether any tokens fit.
  bool fit_costs(int degrees) {
    cost_.all_to_all_bytes = 1;
    std::vector<DegreeCost> of;
    for (int d = 0; d < degrees; ++d) {
      const double degree = 1 << d;
      const std::int64_t half = kTokensOnRank / 2 << d;
      const auto tokens = static_cast<double>(half);
      const Measured one = measure(plan_, 1 << d, {2 * half});
      const Measured two = measure(plan_, 1 << d, {half, half});
      const Measured less = measure(plan_, 1 << d, {half});
      const double squares = 2 * tokens * tokens;  // more in one than in two
      DegreeCost cost;
      cost.quadratic = std::max(0.0, one.time - two.time) * degree / squares;
      cost.linear = (two.time - less.time) * degree / tokens - cost.quadratic * tokens;
      cost.constant = less.time - (cost.quadratic * tokens + cost.linear) * tokens / degree;
      of.push_back(cost);
      const double per_token = (two.bytes - less.bytes) * degree / tokens;  // of a rank
      const auto capacity =
          static_cast<double>((plan_.cluster.gpu.memory - plan_.memory_reserve).value());
      const double room = capacity - (less.bytes - per_token * tokens / degree);
      if (room <= 0) {
        return false;
      }
      cost_.tokens_per_gpu = std::min(cost_.tokens_per_gpu, room / per_token);
      // What a token takes beyond its share of one rank's time is exchange.
      const double exchange = cost.linear - of.front().linear;
      cost_.bandwidth.push_back(exchange > 0 ? 1 / exchange : std::numeric_limits<double>::max());
    }
    cost_.quadratic = of.front().quadratic;
    cost_.linear = of.front().linear;
    cost_.constant = std::max(0.0, of.front().constant);
    return true;
  }

  void tell(const BatchAssignment& assignment) {
    for (const BatchAssignment::Part& part : assignment.micro_batches) {
      std::vector<plan::Pack> packs;
      for (std::size_t g = 0; g < part.groups.degrees.size(); ++g) {
        plan::Pack pack{1 << part.groups.degrees[g], {}};
        for (std::size_t i = 0; i < part.lengths.size(); ++i) {
          if (part.groups.group_of[i] == static_cast<int>(g)) {
            pack.sequences.push_back(static_cast<std::int64_t>(part.lengths[i]));
          }
        }
        if (!pack.sequences.empty()) {
          packs.push_back(std::move(pack));
        }
      }
      plan_.packs.push_back(std::move(packs));
    }
  }

  plan::Plan plan_;
  std::vector<double> lengths_;
  GroupCost cost_;
};

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

// Plans of all layouts, one of each at a time.
class Tries {
 public:
  Tries(const std::vector<plan::Plan>& layouts, const std::vector<std::int64_t>& lengths,
        bool pipelines)
      : layouts_(layouts), lengths_(lengths), found_(layouts.size()), asked_(layouts.size(), 0) {
    if (pipelines) {
      samples_ = samples_of(lengths);
      for (const plan::Plan& layout : layouts) {
        packs_.emplace_back(layout, samples_);
      }
    }
  }

  // The first plan of each, until `ends(whether any was found)`.
  void begin(const Options& options, const std::function<bool(bool)>& ends) {
    std::atomic<bool> any = false;
    const std::vector<std::vector<std::size_t>> groups = like_layouts();
    parallel_for(groups.size(), options.jobs, [&](std::size_t group) {
      plan::Simulator simulator(layouts_[groups[group].front()]);
      for (const std::size_t index : groups[group]) {
        if (ends(any)) {
          return;
        }
        found_[index] = has_pipelines() ? packs_[index].next(simulator)
                                        : LayoutSearch(layouts_[index], lengths_).run();
        asked_[index] = 1;
        any = any || found_[index].has_value();
      }
    });
  }

  // Of the plans not taken yet the fastest whose replay fits. A pipeline whose replay does not has
  // another try, with less in flight. Nothing when no more fit.
  std::optional<Found> take_fastest(ByteCount reserve, int jobs) {
    while (true) {
      const auto fastest = std::min_element(found_.begin(), found_.end(), is_faster);
      if (fastest == found_.end() || !*fastest) {
        return std::nullopt;
      }
      const auto index = static_cast<std::size_t>(fastest - found_.begin());
      std::optional<Found> one = std::exchange(found_[index], std::nullopt);
      if (replay_fits(one->plan, one->simulation.memory, reserve, jobs)) {
        ++taken_;
        return one;
      }
      if (has_pipelines()) {
        plan::Simulator simulator(layouts_[index]);
        found_[index] = packs_[index].next(simulator);
      }
    }
  }

  std::int64_t unexplored() const { return std::count(asked_.begin(), asked_.end(), 0); }
  // Layouts without a plan that fits, as far as asked.
  std::int64_t infeasible() const {
    return std::count(found_.begin(), found_.end(), std::nullopt) - taken_ - unexplored();
  }

 private:
  bool has_pipelines() const { return !packs_.empty(); }
  static bool is_faster(const std::optional<Found>& a, const std::optional<Found>& b) {
    return a && (!b || a->simulation.iteration_time < b->simulation.iteration_time);
  }

  // Those of pipelines whose blocks cost the same, which one simulator keeps.
  std::vector<std::vector<std::size_t>> like_layouts() const {
    std::vector<std::vector<std::size_t>> groups;
    for (std::size_t index = 0; index < layouts_.size(); ++index) {
      const auto is_like = [&](const std::vector<std::size_t>& group) {
        plan::BlockPlan layout = layouts_[group.front()].blocks.front().layout;
        layout.zero_stage = layouts_[index].blocks.front().layout.zero_stage;
        return layout == layouts_[index].blocks.front().layout;
      };
      const auto group =
          has_pipelines() ? std::find_if(groups.begin(), groups.end(), is_like) : groups.end();
      if (group == groups.end()) {
        groups.push_back({index});
      } else {
        group->push_back(index);
      }
    }
    return groups;
  }

  const std::vector<plan::Plan>& layouts_;
  const std::vector<std::int64_t>& lengths_;
  std::vector<Sample> samples_;
  std::vector<PipelinePacks> packs_;         // of pipelines; empty: groups of ranks
  std::vector<std::optional<Found>> found_;  // by layout
  std::vector<char> asked_;                  // the same
  std::int64_t taken_ = 0;
};

}  // namespace

Outcome search_packed(const plan::Plan& base, const Options& options,
                      const std::vector<std::int64_t>& lengths) {
  const auto begin = std::chrono::steady_clock::now();
  const auto elapsed = [&] {
    return Seconds(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  };
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
  Tries tries(layouts, lengths, !pipeline.empty());
  const auto is_interrupted = [&] { return options.stop && options.stop(); };
  tries.begin(options, [&](bool found) {  // a limit on time waits for a first plan
    return is_interrupted() ||
           (found && options.time_limit.value() > 0 && elapsed() > options.time_limit);
  });
  Outcome outcome;
  outcome.interrupted = is_interrupted();
  std::vector<Found> fitting;
  while (static_cast<int>(fitting.size()) <= options.top) {
    std::optional<Found> next = tries.take_fastest(base.memory_reserve, options.jobs);
    if (!next) {
      break;
    }
    fitting.push_back(std::move(*next));
  }
  outcome.plans = static_cast<std::int64_t>(layouts.size());
  outcome.infeasible = outcome.pruned = tries.infeasible();
  outcome.unexplored = tries.unexplored();
  outcome.timed_out = outcome.unexplored > 0 && !outcome.interrupted;
  outcome.simulated = outcome.plans - outcome.infeasible - outcome.unexplored;
  Drawing drawing(options, elapsed());
  parallel_for(fitting.size(), options.jobs, [&](std::size_t index) {
    Found& one = fitting[index];
    one.simulation = plan::simulate(one.plan, {.interval_draws = options.interval_draws,
                                               .stop_draws = [&] { return drawing.is_over(); }});
  });
  if (!fitting.empty()) {
    outcome.best = std::move(fitting.front());
    outcome.alternatives.assign(std::make_move_iterator(fitting.begin() + 1),
                                std::make_move_iterator(fitting.end()));
  }
  outcome.gap_fraction = outcome.best ? 1 : 0;  // no bound on other packs
  outcome.closest_overflow = "no packs fit the memory of any layout";
  outcome.search_time = elapsed();
  return outcome;
}

}  // namespace orrery::search
