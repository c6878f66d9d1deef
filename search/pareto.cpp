// SPDX-License-Identifier: Apache-2.0
#include "search/pareto.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <iterator>
#include <limits>

#include "base/error.hpp"
#include "base/interrupt.hpp"
#include "base/text.hpp"
#include "plan/replay/memory_replay.hpp"
#include "search/pareto_log.hpp"
#include "search/per_block/space.hpp"
#include "search/tree/kept_costs.hpp"

namespace orrery::search {
namespace {

const std::array<std::string, 3> kKinds = {"memory", "gpus", "cost"};
constexpr std::int64_t kMemorySteps = 16;  // of a GPU, between budgets of layouts by block

ByteCount fullest(const plan::Simulation& simulation) {
  ByteCount most;
  for (const plan::StageMemory& stage : simulation.memory) {
    most = std::max(most, stage.total());
  }
  return most;
}

ByteCount replayed_peak(const plan::Plan& plan) {
  ByteCount most;
  for (const plan::MemoryPeak& peak : plan::replay_memory(plan, {}, 0)) {
    most = std::max(most, peak.device());
  }
  return most;
}

ParetoPoint point_of(ParetoStep& step) {
  ParetoPoint point{std::move(*step.found), 0, {}, {}, 0, step.lower_bound, step.gap_fraction};
  const plan::Plan& plan = point.found.plan;
  point.gpus = plan.cluster.num_gpus();
  point.memory = fullest(point.found.simulation);
  point.usd_per_iteration =
      plan.cluster.gpu.price.value() * point.gpus * point.found.simulation.iteration_time.value();
  return point;
}

class Walk {
 public:
  Walk(ParetoFrontier& frontier, const Options& options, ByteCount reserve, ParetoLog& log,
       const std::function<void(const ParetoFrontier&)>& done,
       const std::function<void(const ProgressReport&)>& progress)
      : frontier_(frontier), options_(options), log_(log), done_(done), progress_(progress) {
    options_.top = 0;
    options_.replay_reserve = reserve;  // whatever the categories are held to
    options_.checkpoint.clear();        // the log is that of all searches
    options_.resume.clear();
  }

  // All searches have the same costs.
  void keep_costs() { options_.kept_costs = &costs_; }

  // Nothing when no plan fits or none exists; then `below` says why. With a `cutoff` also nothing
  // when no plan is faster than that, as soon as the bound says so.
  std::optional<ParetoPoint> search(const plan::Plan& base,
                                    std::optional<Seconds> cutoff = std::nullopt) {
    std::optional<ParetoStep> step = log_.next();
    if (!step) {
      step = search_now(base, cutoff);
      log_.add(*step);
    }
    frontier_.below = step->below;
    if (!step->divides) {
      return std::nullopt;
    }
    ++frontier_.searches;
    count(step->plans);
    bounds_.push_back({base.cluster.num_gpus(), step->lower_bound});
    frontier_.below_is_proven = step->proves_none();
    if (options_.space == SpaceKind::PerBlock) {
      add_unproven(base);
    }
    frontier_.simulated += step->simulated;
    frontier_.complete = frontier_.complete && !step->ended_early;
    if (done_) {
      done_(frontier_);
    }
    return step->found ? std::optional(point_of(*step)) : std::nullopt;
  }

  bool stopped() const { return interrupted(); }

  // A part that is not searched; no plan of it takes less than this.
  void leave_out(std::int64_t gpus, Seconds least) { bounds_.push_back({gpus, least}); }

  // Of every point the least bound of the parts on which a plan may cost no more.
  void bound_points() {
    const bool costs = frontier_.kind == ParetoKind::Cost;
    for (ParetoPoint& point : frontier_.points) {
      const double most = costs ? point.gpus * point.found.simulation.iteration_time.value()
                                : static_cast<double>(point.gpus);
      for (const PartBound& part : bounds_) {
        if (static_cast<double>(part.gpus) * (costs ? part.least.value() : 1.0) <= most) {
          point.lower_bound = std::min(point.lower_bound, part.least);
        }
      }
      point.gap_fraction =
          std::max(0.0, 1.0 - point.lower_bound / point.found.simulation.iteration_time);
    }
  }

 private:
  // No plan of a part is faster.
  struct PartBound {
    std::int64_t gpus = 0;
    Seconds least;
  };

  void add_unproven(const plan::Plan& base) {
    const Constraints constraints = per_block_constraints(options_.constraints);
    std::vector<std::string>& all = frontier_.unproven_schedules;
    std::vector<std::string> both;
    const std::vector<std::string> more = PerBlockSpace(base, constraints).unproven_schedules();
    std::set_union(all.begin(), all.end(), more.begin(), more.end(), std::back_inserter(both));
    all = std::move(both);
  }

  void count(std::int64_t plans) {
    std::int64_t& all = frontier_.plans;
    const bool fits =
        all >= 0 && plans >= 0 && plans <= std::numeric_limits<std::int64_t>::max() - all;
    all = fits ? all + plans : -1;
  }

  ParetoStep search_now(const plan::Plan& base, std::optional<Seconds> cutoff) {
    Options options = options_;
    std::atomic<bool> beaten = false;
    options.stop = [&] { return beaten.load() || (options_.stop && options_.stop()); };
    const auto progress = [&](const ProgressReport& report) {
      beaten = cutoff && report.bound >= *cutoff;
      if (progress_) {
        progress_(report);
      }
    };
    ParetoStep step;
    try {
      Outcome outcome = search_space(base, options, progress);
      step.ended_early = (outcome.interrupted || outcome.timed_out) && !beaten;
      step.lower_bound = outcome.lower_bound;
      step.gap_fraction = outcome.gap_fraction;
      step.plans = outcome.plans;
      step.simulated = outcome.simulated;
      step.below = outcome.closest_overflow;
      if (!beaten) {
        step.found = std::move(outcome.best);
      }
    } catch (const Error& error) {  // no plan divides this part of the cluster
      step.divides = false;
      step.below = error.what();
    }
    return step;
  }

  ParetoFrontier& frontier_;
  std::vector<PartBound> bounds_;
  KeptCosts costs_;
  Options options_;
  ParetoLog& log_;
  const std::function<void(const ParetoFrontier&)>& done_;
  const std::function<void(const ProgressReport&)>& progress_;
};

// What the next search of a frontier against memory may need. Of layouts by block there are too
// many plans for one byte less.
ByteCount next_budget(ByteCount needed, ByteCount capacity, SpaceKind space) {
  if (space == SpaceKind::Homogeneous) {
    return needed - ByteCount(1);
  }
  std::int64_t steps = kMemorySteps;
  const auto budget = [&] { return ByteCount(capacity.value() / kMemorySteps * steps); };
  while (budget() >= needed) {
    --steps;
  }
  return budget();
}

void against_memory(Walk& walk, const plan::Plan& base, ParetoFrontier& frontier) {
  const ByteCount capacity = base.cluster.gpu.memory;
  plan::Plan tighter = base;
  while (!walk.stopped()) {
    std::optional<ParetoPoint> point = walk.search(tighter);
    if (!point) {
      return;
    }
    tighter.memory_reserve = capacity - next_budget(point->memory, capacity, frontier.space);
    point->found.plan.memory_reserve = base.memory_reserve;
    frontier.points.push_back(std::move(*point));
    if (tighter.memory_reserve >= capacity) {
      return;
    }
  }
  frontier.complete = false;
}

// A part of a cluster: --set values, and its GPUs.
struct Part {
  std::vector<std::string> settings;
  std::int64_t gpus = 0;
};

// Every number of GPUs of one node, then every number of nodes. Divisors come first, ascending: an
// early end then has points all along, and what they found rules most of the others out.
std::vector<Part> parts_of(const topologies::Cluster& cluster) {
  std::vector<Part> parts;
  for (const bool divides : {true, false}) {
    const std::int64_t gpus_of_node = cluster.node.gpus;
    for (std::int64_t gpus = 1; gpus < gpus_of_node; ++gpus) {
      if ((gpus_of_node % gpus == 0) == divides) {
        parts.push_back({{"nodes=1", fmt::format("node.gpus={}", gpus)}, gpus});
      }
    }
    for (std::int64_t nodes = 1; nodes <= cluster.num_nodes; ++nodes) {
      if ((cluster.num_nodes % nodes == 0) == divides) {
        parts.push_back({{fmt::format("nodes={}", nodes)}, nodes * gpus_of_node});
      }
    }
  }
  return parts;
}

// At the peak rate of so many GPUs.
Seconds least_time(const plan::Plan& base, std::int64_t gpus) {
  const Flops flops = models::model_flops(base.network, {base.batch, base.sequence}, true);
  return flops / (base.cluster.gpu.peak_of(base.precision) * static_cast<double>(gpus));
}

std::string part_text(const Part& part, const topologies::Cluster& cluster) {
  const std::int64_t of_node = cluster.node.gpus;
  return part.gpus < of_node ? counted(part.gpus, "GPU") + " of a node"
                             : counted(part.gpus / of_node, "node");
}

// The part of the cluster as a problem of its own; one that cannot be built is noted.
std::optional<plan::Plan> part_base(const Problem& problem, const Part& part,
                                    const plan::Plan& base, ParetoFrontier& frontier) {
  try {
    plan::Plan result = base_plan(with_settings(problem, part.settings));
    result.execution = base.execution;
    return result;
  } catch (const Error& error) {  // a fabric or a mesh of links that cannot have so few
    frontier.complete = false;
    frontier.unsearched.push_back(
        fmt::format("{}: {}", part_text(part, base.cluster), error.what()));
    return std::nullopt;
  }
}

void against_parts(Walk& walk, const Problem& problem, const plan::Plan& base,
                   ParetoFrontier& frontier) {
  for (const Part& part : parts_of(base.cluster)) {
    if (walk.stopped()) {
      frontier.complete = false;
      walk.leave_out(part.gpus, least_time(base, part.gpus));
      continue;
    }
    std::optional<Seconds> best;  // with no more GPUs
    for (const ParetoPoint& point : frontier.points) {
      const Seconds time = point.found.simulation.iteration_time;
      if (point.gpus <= part.gpus && (!best || time < *best)) {
        best = time;
      }
    }
    if (best && least_time(base, part.gpus) >= *best) {
      continue;
    }
    const std::optional<plan::Plan> smaller = part_base(problem, part, base, frontier);
    if (!smaller) {
      continue;
    }
    if (std::optional<ParetoPoint> point = walk.search(*smaller, best)) {
      frontier.points.push_back(std::move(*point));
    }
  }
  frontier.below = frontier.points.empty() ? frontier.below : "";
}

double price_of(const ParetoPoint& point, ParetoKind kind) {
  return kind == ParetoKind::Cost   ? point.usd_per_iteration
         : kind == ParetoKind::Gpus ? static_cast<double>(point.gpus)
                                    : static_cast<double>(point.memory.value());
}

// Keeps what no other point beats in both, the fastest first.
void keep_undominated(std::vector<ParetoPoint>& points, ParetoKind kind) {
  std::stable_sort(points.begin(), points.end(), [&](const ParetoPoint& a, const ParetoPoint& b) {
    const Seconds first = a.found.simulation.iteration_time;
    const Seconds second = b.found.simulation.iteration_time;
    return first != second ? first < second : price_of(a, kind) < price_of(b, kind);
  });
  std::vector<ParetoPoint> kept;
  for (ParetoPoint& point : points) {
    if (kept.empty() || price_of(point, kind) < price_of(kept.back(), kind)) {
      kept.push_back(std::move(point));
    }
  }
  points = std::move(kept);
}

}  // namespace

ParetoKind parse_pareto_kind(std::string_view text, std::string_view where) {
  const auto found = std::find(kKinds.begin(), kKinds.end(), text);
  if (found == kKinds.end()) {
    bad_input(where, fmt::format("unknown frontier \"{}\"", printable(text)),
              nearest_hint(text, kKinds));
  }
  return static_cast<ParetoKind>(found - kKinds.begin());
}

std::string_view to_text(ParetoKind kind) { return kKinds[static_cast<std::size_t>(kind)]; }

ParetoFrontier find_pareto(ParetoKind kind, const Problem& problem, const plan::Plan& base,
                           const Options& options,
                           const std::function<void(const ParetoFrontier&)>& done,
                           const std::function<void(const ProgressReport&)>& progress) {
  ParetoFrontier frontier;
  frontier.kind = kind;
  frontier.space = options.space;
  if (kind == ParetoKind::Cost && base.cluster.gpu.price.value() <= 0) {
    bad_input("--pareto", fmt::format("no price of {} is known", base.cluster.gpu.name),
              "give one: --set gpu.price=\"2.50 USD/h\"");
  }
  ParetoLog log(to_text(kind), base, options);
  Walk walk(frontier, options, base.memory_reserve, log, done, progress);
  if (kind == ParetoKind::Memory) {
    walk.keep_costs();
    against_memory(walk, base, frontier);
  } else {
    against_parts(walk, problem, base, frontier);
    walk.bound_points();
  }
  keep_undominated(frontier.points, kind);
  if (kind == ParetoKind::Memory) {
    for (ParetoPoint& point : frontier.points) {
      point.replayed = replayed_peak(point.found.plan);
    }
  }
  return frontier;
}

}  // namespace orrery::search
