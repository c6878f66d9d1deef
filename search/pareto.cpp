// SPDX-License-Identifier: Apache-2.0
#include "search/pareto.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>

#include "base/error.hpp"
#include "base/interrupt.hpp"
#include "base/text.hpp"
#include "plan/replay/memory_replay.hpp"
#include "search/pareto_log.hpp"

namespace orrery::search {
namespace {

const std::array<std::string, 3> kKinds = {"memory", "gpus", "cost"};

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
       const std::function<void(const ParetoFrontier&)>& done)
      : frontier_(frontier), options_(options), log_(log), done_(done) {
    options_.top = 0;
    options_.replay_reserve = reserve;  // whatever the categories are held to
    options_.checkpoint.clear();        // the log is that of all searches
    options_.resume.clear();
  }

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
    frontier_.plans += step->plans;
    frontier_.simulated += step->simulated;
    frontier_.complete = frontier_.complete && !step->ended_early;
    if (done_) {
      done_(frontier_);
    }
    return step->found ? std::optional(point_of(*step)) : std::nullopt;
  }

  bool stopped() const { return interrupted(); }

 private:
  ParetoStep search_now(const plan::Plan& base, std::optional<Seconds> cutoff) {
    Options options = options_;
    std::atomic<bool> beaten = false;
    options.stop = [&] { return beaten.load() || (options_.stop && options_.stop()); };
    const auto progress = [&](const ProgressReport& report) {
      beaten = cutoff && report.bound >= *cutoff;
    };
    ParetoStep step;
    try {
      Outcome outcome = orrery::search::search(base, options, progress);
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
  Options options_;
  ParetoLog& log_;
  const std::function<void(const ParetoFrontier&)>& done_;
};

void against_memory(Walk& walk, const plan::Plan& base, ParetoFrontier& frontier) {
  plan::Plan tighter = base;
  while (!walk.stopped()) {
    std::optional<ParetoPoint> point = walk.search(tighter);
    if (!point) {
      return;
    }
    tighter.memory_reserve = base.cluster.gpu.memory - point->memory + ByteCount(1);
    point->found.plan.memory_reserve = base.memory_reserve;
    std::vector<ParetoPoint>& points = frontier.points;
    if (!points.empty() &&
        points.back().found.simulation.iteration_time == point->found.simulation.iteration_time) {
      points.pop_back();  // as fast with less
    }
    points.push_back(std::move(*point));
    if (tighter.memory_reserve >= base.cluster.gpu.memory) {
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

// Keeps what no other point beats in both, the fastest first.
void keep_undominated(std::vector<ParetoPoint>& points, double (*price)(const ParetoPoint&)) {
  std::stable_sort(points.begin(), points.end(), [&](const ParetoPoint& a, const ParetoPoint& b) {
    const Seconds first = a.found.simulation.iteration_time;
    const Seconds second = b.found.simulation.iteration_time;
    return first != second ? first < second : price(a) < price(b);
  });
  std::vector<ParetoPoint> kept;
  for (ParetoPoint& point : points) {
    if (kept.empty() || price(point) < price(kept.back())) {
      kept.push_back(std::move(point));
    }
  }
  points = std::move(kept);
}

void against_parts(Walk& walk, const Problem& problem, const plan::Plan& base,
                   ParetoFrontier& frontier) {
  for (const Part& part : parts_of(base.cluster)) {
    if (walk.stopped()) {
      frontier.complete = false;
      break;
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
  keep_undominated(
      frontier.points, frontier.kind == ParetoKind::Cost
                           ? [](const ParetoPoint& p) { return p.usd_per_iteration; }
                           : [](const ParetoPoint& p) { return static_cast<double>(p.gpus); });
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
                           const std::function<void(const ParetoFrontier&)>& done) {
  ParetoFrontier frontier;
  frontier.kind = kind;
  if (kind == ParetoKind::Cost && base.cluster.gpu.price.value() <= 0) {
    bad_input("--pareto", fmt::format("no price of {} is known", base.cluster.gpu.name),
              "give one: --set gpu.price=\"2.50 USD/h\"");
  }
  ParetoLog log(to_text(kind), base, options);
  Walk walk(frontier, options, base.memory_reserve, log, done);
  if (kind == ParetoKind::Memory) {
    against_memory(walk, base, frontier);
    for (ParetoPoint& point : frontier.points) {
      point.replayed = replayed_peak(point.found.plan);
    }
    return frontier;
  }
  against_parts(walk, problem, base, frontier);
  return frontier;
}

}  // namespace orrery::search
