// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/interrupt.hpp"
#include "base/limits.hpp"
#include "base/parallel.hpp"
#include "base/quantity_text.hpp"
#include "base/worker_crew.hpp"
#include "plan/document/plan_text.hpp"
#include "search/tree/checkpoint.hpp"
#include "search/tree/kept_costs.hpp"
#include "search/tree/search.hpp"
#include "studies/sweeps/member_errors.hpp"
#include "studies/sweeps/sweep.hpp"

namespace orrery::studies {
namespace {

search::Problem problem_at(const Sweep& sweep, const std::vector<std::string>& values) {
  search::Problem problem = sweep.problem;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::string& field = sweep.fields[i];
    const std::string& value = values[i];
    if (field == "network") {
      problem.network = value;
    } else if (field == "cluster") {
      problem.cluster = value;
    } else if (field == "batch") {
      problem.batch = parse_integer(value, "batch", 1, limits::kMaxBatch);
    } else if (field == "sequence") {
      problem.sequence = parse_integer(value, "sequence", 1, limits::kMaxSequence);
    } else if (field == "precision") {
      problem.precision = value;
    } else if (field == "profile") {
      problem.profile = value;
    } else if (field == "memory_reserve") {
      problem.memory_reserve = value;
    } else if (!is_fixed_field(field)) {
      problem.settings.push_back(fmt::format("{}={}", field, value));
    }
  }
  return problem;
}

search::Constraints constraints_at(const Sweep& sweep, const std::vector<std::string>& values) {
  search::Constraints constraints = sweep.constraints;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (is_fixed_field(sweep.fields[i])) {
      fix_field(sweep.fields[i], values[i], sweep.fields[i], constraints);
    }
  }
  constraints.check_contradictions();
  return constraints;
}

struct PointInputs {
  std::string all;     // a hash of what the search and its price follow from
  std::string search;  // without what decides no plan: the price, and where values came from
  std::string costs;   // without what no cost of a block depends on: memory and batch, too
};

PointInputs inputs_of(const plan::Plan& base, const search::Constraints& constraints) {
  std::string shared;
  std::string costs = fmt::format("{} {} ", base.sequence, to_text(base.precision));
  std::uint64_t of_cluster = 0;
  for (const search::InputHash& input : search::plan_hashes(base)) {
    if (input.name == "cluster") {
      of_cluster = input.hash;
      continue;
    }
    shared += fmt::format("{:016x}", input.hash);
    if (input.name != "workload" && input.name != "memory reserve") {
      costs += fmt::format("{:016x}", input.hash);
    }
  }
  for (const auto& schedule : constraints.documents()) {
    shared += schedule->json.dump(-1);
  }
  const std::string fixed = fmt::format("{}", fmt::join(constraints.fixed_texts(), ","));
  shared += fixed;
  costs += fixed;
  Json cluster = base.cluster.document;
  cluster.set("overrides", Json());
  Json* gpu = cluster.find("gpu");
  const bool stated = gpu != nullptr && gpu->is_object();
  if (stated) {
    gpu->set("price", Json());
  }
  const std::string searched = shared + cluster.dump(-1);
  if (stated) {
    gpu->set("memory", Json());
  }
  return {fmt::format("{:016x}", hash_of(fmt::format("{}{:016x}", shared, of_cluster))), searched,
          costs + cluster.dump(-1)};
}

SweepPoint result_of(const search::Outcome& outcome) {
  SweepPoint point;
  point.plans = outcome.plans;
  if (!outcome.best) {
    point.state = PointState::Infeasible;
    point.message = outcome.closest_overflow;
    return point;
  }
  const plan::Simulation& simulation = outcome.best->simulation;
  point.state = PointState::Found;
  point.layout = plan::layout_text(outcome.best->plan);
  point.iteration_time_s = simulation.iteration_time.value();
  point.gpus = outcome.best->plan.num_gpus();
  point.tokens_per_s = simulation.tokens_per_second_per_gpu * static_cast<double>(point.gpus);
  point.mfu = simulation.mfu_fraction;
  point.gap = outcome.gap_fraction;
  for (const plan::StageMemory& memory : simulation.memory) {
    point.peak_memory_bytes =
        std::max(point.peak_memory_bytes, static_cast<double>(memory.total().value()));
  }
  return point;
}

SweepPoint failed(const Error& error) {
  SweepPoint point;
  point.state = PointState::Failed;
  point.message = member_message(error);
  return point;
}

// Points with the same search.
struct Shared {
  struct Point {
    std::size_t index = 0;
    std::string inputs;
    double usd_per_hour = 0;
  };
  plan::Plan base;
  search::Constraints constraints;
  std::string costs;  // as of PointInputs
  std::vector<Point> points;
};

std::vector<Shared> share(const Sweep& sweep, std::vector<SweepPoint>& points) {
  std::vector<Shared> groups;
  std::map<std::string, std::size_t> known;
  for (std::size_t i = 0; i < points.size(); ++i) {
    try {
      plan::Plan base = search::base_plan(problem_at(sweep, sweep.points[i]));
      search::Constraints constraints = constraints_at(sweep, sweep.points[i]);
      constraints.apply(base.execution);
      PointInputs inputs = inputs_of(base, constraints);
      if (points[i].inputs == inputs.all) {
        continue;
      }
      points[i] = SweepPoint();
      const double price = (base.cluster.gpu.price * kHour).value();
      const double usd_per_hour = price * base.cluster.num_gpus();
      const auto [entry, added] = known.try_emplace(std::move(inputs.search), groups.size());
      if (added) {
        groups.push_back({std::move(base), std::move(constraints), std::move(inputs.costs), {}});
      }
      groups[entry->second].points.push_back({i, std::move(inputs.all), usd_per_hour});
    } catch (const Error& error) {
      points[i] = failed(error);
    }
  }
  // Side by side: a thread then takes one after the other.
  std::stable_sort(groups.begin(), groups.end(),
                   [](const Shared& a, const Shared& b) { return a.costs < b.costs; });
  return groups;
}

// What a thread keeps from one search for the next with the same costs.
class Costs {
 public:
  search::KeptCosts* of(const Shared& group) {
    if (group.costs != costs_ || ++searches_ == kMostSearches) {
      kept_.emplace();
      costs_ = group.costs;
      searches_ = 0;
    }
    return &*kept_;
  }

 private:
  static constexpr int kMostSearches = 16;  // of other batches, which add costs of their own

  std::string costs_;
  int searches_ = 0;
  std::optional<search::KeptCosts> kept_;
};

}  // namespace

void run_sweep(const Sweep& sweep, std::vector<SweepPoint>& points, int jobs,
               const std::function<void(std::size_t finished)>& done) {
  const std::vector<Shared> groups = share(sweep, points);
  const auto finished = [&points] {
    return static_cast<std::size_t>(
        std::count_if(points.begin(), points.end(),
                      [](const SweepPoint& point) { return point.state != PointState::Pending; }));
  };
  std::mutex mutex;
  search::Options options;
  options.jobs = 1;
  options.time_limit = sweep.time_limit;
  options.top = 0;
  options.interval_draws = 0;  // points have none
  WorkerCrew<Costs> crew(thread_count(jobs),
                         [](const Costs*) { return std::make_unique<Costs>(); });
  crew.for_each(groups.size(), [&](Costs& costs, std::size_t index) {
    const Shared& group = groups[index];
    if (interrupted()) {
      return;
    }
    SweepPoint point;
    try {
      search::Options own = options;
      own.constraints = group.constraints;
      own.kept_costs = costs.of(group);
      const search::Outcome outcome = search::search(group.base, own);
      if (outcome.interrupted) {
        return;
      }
      point = result_of(outcome);
    } catch (const Error& error) {
      point = failed(error);
    }
    const std::scoped_lock lock(mutex);
    for (const Shared::Point& one : group.points) {
      points[one.index] = point;
      points[one.index].usd_per_hour = one.usd_per_hour;
      points[one.index].inputs = point.state == PointState::Failed ? "" : one.inputs;
    }
    if (done) {
      done(finished());
    }
  });
}

}  // namespace orrery::studies
