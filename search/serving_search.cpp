// SPDX-License-Identifier: Apache-2.0
#include "search/serving_search.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>

#include "base/error.hpp"
#include "base/interrupt.hpp"
#include "base/text.hpp"

namespace orrery::search {
namespace {

using plan::Plan;
using plan::ServingModel;
using plan::ServingOptions;

struct Candidate {
  Plan plan;
  Seconds bound;
};

bool is_late(const plan::ServingSimulation& simulation, const ServingLimits& limits) {
  return (limits.first_token_p99 && simulation.first_token.p99 > *limits.first_token_p99) ||
         (limits.per_output_token_p99 &&
          simulation.per_output_token.p99 > *limits.per_output_token_p99);
}

bool arrive_over_time(const std::vector<plan::Request>& requests) {
  return std::any_of(requests.begin(), requests.end(), [&](const plan::Request& request) {
    return request.arrival != requests.front().arrival;
  });
}

Plan with_options(const Plan& layout, const ServingOptions& options) {
  Plan plan = layout;
  plan.serving =
      std::make_shared<const plan::Serving>(plan::Serving{layout.serving->requests, options});
  return plan;
}

class Search {
 public:
  Search(const Plan& base, const ServingSearch& search,
         const std::function<void(const std::string&)>& progress)
      : base_(base),
        search_(search),
        progress_(progress),
        requests_(plan::generate_requests(base.serving->requests)),
        longest_(plan::longest_request(requests_)),
        has_prefixes_(std::any_of(requests_.begin(), requests_.end(),
                                  [](const auto& request) { return request.prefix >= 0; })),
        ranking_(arrive_over_time(requests_), search.top) {}

  ServingOutcome run() {
    std::string reason;
    const std::vector<Plan> all = serving_layouts(base_, search_.fixed, reason);
    for (const ServingOptions& cache : serving_caches(base_.serving->options, search_.fixed)) {
      const std::vector<ServingOptions> space = serving_options(cache, search_.fixed);
      for (const Plan& layout : all) {
        for (const plan::Routing routing :
             serving_routings(layout.dp, search_.fixed, has_prefixes_)) {
          for (ServingOptions options : space) {
            options.routing = routing;
            add(with_options(layout, options));
          }
        }
      }
    }
    if (outcome_.plans > 0 && outcome_.infeasible == outcome_.plans) {
      const plan::ServingSimulation nothing = plan::simulate_serving(*closest_);
      outcome_.closest = *nothing.does_not_fit;
      outcome_.nearest = nothing.nearest;
    }
    if (outcome_.plans == 0) {
      if (!reason.empty()) {
        throw Error(ErrorKind::BadInput, {}, reason);
      }
      bad_input("--fix", "no serving plan has these values",
                "tp x pp must divide the number of GPUs");
    }
    std::stable_sort(candidates_.begin(), candidates_.end(),
                     [](const Candidate& a, const Candidate& b) { return a.bound < b.bound; });
    std::size_t next = 0;
    while (next < candidates_.size() && !stops()) {
      try_plan(candidates_[next++]);
    }
    finish(next);
    return std::move(outcome_);
  }

 private:
  using Clock = std::chrono::steady_clock;

  Seconds elapsed() const {
    return Seconds(std::chrono::duration<double>(Clock::now() - start_).count());
  }

  // A limit on time waits for a first plan.
  bool stops() {
    outcome_.interrupted = interrupted();
    outcome_.timed_out = !outcome_.interrupted && outcome_.simulated > 0 &&
                         search_.time_limit.value() > 0 && elapsed() > search_.time_limit;
    return outcome_.interrupted || outcome_.timed_out;
  }

  // Candidates from `open` on were not looked at; the first of them has the least bound.
  void finish(std::size_t open) {
    outcome_.unexplored = static_cast<std::int64_t>(candidates_.size() - open);
    outcome_.search_time = elapsed();
    outcome_.over_time = arrive_over_time(requests_);
    if (ranking_.empty()) {
      return;
    }
    outcome_.found = ranking_.list();
    outcome_.as_fast = ranking_.as_fast();
    const Seconds fastest = ranking_.least();
    outcome_.lower_bound =
        open < candidates_.size() ? std::min(fastest, candidates_[open].bound) : fastest;
    outcome_.gap_fraction = 1 - outcome_.lower_bound / fastest;
  }

  void add(Plan plan) {
    ++outcome_.plans;
    ServingModel model = model_of(plan);
    const std::vector<plan::ServingMemory> memory = model.memory();
    const plan::ServingVerdict verdict = plan::serving_fits(memory, longest_, plan);
    if (!verdict.fits) {
      ++outcome_.infeasible;
      std::int64_t tokens = memory.front().cache.value();
      for (const plan::ServingMemory& stage : memory) {
        tokens = std::min(tokens, stage.cache.value());
      }
      if (!closest_ || tokens > closest_cache_) {
        closest_cache_ = tokens;
        closest_ = std::make_shared<const Plan>(plan);
      }
      return;
    }
    const Seconds bound = plan::serving_bound(plan, model, requests_);
    candidates_.push_back({std::move(plan), bound});
  }

  // Plans of one layout share the costs of their iterations.
  ServingModel model_of(const Plan& plan) {
    const plan::BlockPlan& layout = plan.blocks.front().layout;
    const std::array<int, 3> key = {layout.tp, layout.cp, layout.ep};
    const auto known = models_.find(key);
    const ServingModel& like = known != models_.end()
                                   ? known->second
                                   : models_.emplace(key, ServingModel(plan)).first->second;
    return {plan, like};
  }

  void try_plan(const Candidate& candidate) {
    if (ranking_.leaves_out(candidate.bound)) {
      ++outcome_.pruned;
      return;
    }
    if (progress_) {
      progress_(fmt::format("{} of {} simulated", outcome_.simulated,
                            counted(std::ssize(candidates_), "plan")));
    }
    ++outcome_.simulated;
    ServingModel model = model_of(candidate.plan);
    ServingFound result{candidate.plan, plan::simulate_serving(candidate.plan, model, requests_)};
    if (is_late(result.simulation, search_.limits)) {
      ++outcome_.late;
      return;
    }
    ranking_.add(std::move(result));
  }

  Clock::time_point start_ = Clock::now();
  const Plan& base_;
  const ServingSearch& search_;
  const std::function<void(const std::string&)>& progress_;
  std::vector<plan::Request> requests_;
  std::int64_t longest_;
  bool has_prefixes_;
  ServingRanking ranking_;
  std::map<std::array<int, 3>, ServingModel> models_;  // by tp, cp, ep
  std::vector<Candidate> candidates_;
  std::shared_ptr<const Plan> closest_;
  std::int64_t closest_cache_ = 0;
  ServingOutcome outcome_;
};

}  // namespace

ServingOutcome search_serving(const Plan& base, const ServingSearch& search,
                              const std::function<void(const std::string&)>& progress) {
  return Search(base, search, progress).run();
}

}  // namespace orrery::search
