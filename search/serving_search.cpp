// SPDX-License-Identifier: Apache-2.0
#include "search/serving_search.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <exception>
#include <limits>
#include <map>
#include <memory>
#include <mutex>

#include "base/error.hpp"
#include "base/interrupt.hpp"
#include "base/parallel.hpp"
#include "base/text.hpp"
#include "base/worker_crew.hpp"

namespace orrery::search {
namespace {

using plan::Plan;
using plan::ServingModel;
using plan::ServingOptions;

constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

struct Candidate {
  Plan plan;
  Seconds bound;
  std::size_t like = kNone;  // an earlier one that differs in fewer max_requests alone
};

// By bound; last, those that there was no time to bound.
bool is_before(const Candidate& a, const Candidate& b) {
  const bool is_bounded = a.bound > Seconds();
  return is_bounded != (b.bound > Seconds()) ? is_bounded : a.bound < b.bound;
}

bool has_fewer_requests(const Plan& plan, const Plan& other) {
  ServingOptions options = plan.serving->options;
  options.max_requests = other.serving->options.max_requests;
  return plan.serving->options.max_requests < options.max_requests &&
         options == other.serving->options && plan.pp == other.pp && plan.dp == other.dp &&
         plan.blocks == other.blocks && plan.execution == other.execution;
}

void find_likes(std::vector<Candidate>& candidates) {
  for (std::size_t index = 0; index < candidates.size(); ++index) {
    for (std::size_t earlier = 0; earlier < index; ++earlier) {
      if (has_fewer_requests(candidates[earlier].plan, candidates[index].plan)) {
        candidates[index].like = earlier;
      }
    }
  }
}

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
    const bool elsewhere = search_.fixed.contains("offload_parameters");
    add_all(elsewhere ? with_weights_elsewhere(all, search_.fixed, reason) : all, reason);
    if (!elsewhere && outcome_.infeasible == outcome_.plans) {  // no device holds its parameters
      std::string unused;
      outcome_.streams = true;
      add_all(with_weights_elsewhere(all, search_.fixed, unused), unused);
    }
    if (outcome_.plans > 0 && outcome_.infeasible == outcome_.plans) {
      const plan::ServingSimulation nothing = plan::simulate_serving(*closest_);
      outcome_.closest = *nothing.does_not_fit;
      outcome_.nearest = nothing.nearest;
    }
    if (outcome_.plans == 0) {
      if (!reason.empty()) {
        bad_input(all.empty() ? "" : "--fix", reason);
      }
      bad_input("--fix", "no serving plan has these values",
                "tp x pp x cp must divide the number of GPUs; dp is what they leave");
    }
    std::stable_sort(candidates_.begin(), candidates_.end(), is_before);
    find_likes(candidates_);
    tried_.resize(candidates_.size());
    WorkerCrew<Models> threads(thread_count(search_.jobs),
                               [](const Models*) { return std::make_unique<Models>(); });
    threads.run([this](Models& models, int) { try_plans(models); });
    if (error_) {
      std::rethrow_exception(error_);
    }
    finish(judged_);
    return std::move(outcome_);
  }

 private:
  using Clock = std::chrono::steady_clock;
  using LayoutKey = std::array<int, 4>;  // tp, cp, ep, how all-reduces run
  using Models = std::map<LayoutKey, ServingModel>;

  Seconds elapsed() const {
    return Seconds(std::chrono::duration<double>(Clock::now() - start_).count());
  }

  bool is_interrupted() const { return interrupted() || (search_.stop && search_.stop()); }
  bool is_out_of_time() const {
    return search_.time_limit.value() > 0 && elapsed() > search_.time_limit;
  }

  // Whether no further plan is taken. A limit on time waits for the first one.
  bool stops() {
    if (!ended_) {
      outcome_.interrupted = is_interrupted();
      outcome_.timed_out = !outcome_.interrupted && next_ > 0 && is_out_of_time();
      ended_ = outcome_.interrupted || outcome_.timed_out;
    }
    return ended_;
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
    outcome_.lower_bound = fastest;
    if (open < candidates_.size()) {  // one without a bound is among the last
      outcome_.lower_bound = std::min({fastest, candidates_[open].bound, candidates_.back().bound});
    }
    outcome_.gap_fraction = 1 - outcome_.lower_bound / fastest;
  }

  // `reason`: where no layout is possible, its own comes first.
  void add_all(const std::vector<Plan>& layouts, std::string& reason) {
    std::string unused;
    for (const ServingOptions& cache : serving_caches(base_.serving->options, search_.fixed)) {
      const std::vector<ServingOptions> space =
          serving_options(cache, search_.fixed, layouts.empty() ? unused : reason);
      for (const Plan& layout : layouts) {
        for (const plan::Routing routing :
             serving_routings(layout.dp, search_.fixed, has_prefixes_)) {
          for (const plan::AllReduce all_reduce : serving_all_reduces(layout, search_.fixed)) {
            for (ServingOptions options : space) {
              options.routing = routing;
              options.all_reduce = all_reduce;
              add(with_options(layout, options));
            }
          }
        }
      }
    }
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
      if (!closest_ || (tokens > closest_cache_ && !outcome_.streams)) {
        closest_cache_ = tokens;
        closest_ = std::make_shared<const Plan>(plan);
      }
      return;
    }
    // Bounds of all plans may take longer than there is time for.
    const bool bounds = !interrupted() && !is_out_of_time();
    const Seconds bound = bounds ? plan::serving_bound(plan, model, requests_) : Seconds();
    candidates_.push_back({std::move(plan), bound});
  }

  // Plans of one layout share the costs of their iterations.
  static LayoutKey key_of(const Plan& plan) {
    const plan::BlockPlan& layout = plan.blocks.front().layout;
    return {layout.tp, layout.cp, layout.ep, static_cast<int>(plan.serving->options.all_reduce)};
  }
  ServingModel model_of(const Plan& plan) {
    const auto known = models_.find(key_of(plan));
    const ServingModel& like =
        known != models_.end() ? known->second
                               : models_.emplace(key_of(plan), ServingModel(plan)).first->second;
    return {plan, like};
  }
  // The same for a thread.
  ServingModel model_of(const Plan& plan, Models& models) const {
    auto known = models.find(key_of(plan));
    if (known == models.end()) {
      const ServingModel& first = models_.at(key_of(plan));
      known = models.emplace(key_of(plan), first.on_another_thread()).first;
    }
    return {plan, known->second};
  }

  // What a thread found out of a plan; no run where its bound rules it out, or an error ended it.
  struct Tried {
    bool done = false;
    std::optional<plan::ServingRun> run;
    std::exception_ptr error;
    Seconds limit;  // of the run
  };

  // Each thread takes the next plan and keeps the costs of the layouts that it met. Results are
  // judged in order, so that how far another thread is changes nothing: at most a plan is simulated
  // that one before it rules out, or whose run is known to be that of another. Plans that were
  // taken before an early end are judged, too.
  void try_plans(Models& models) {
    std::unique_lock lock(mutex_);
    while (next_ < candidates_.size() && !stops()) {
      const std::size_t index = next_++;
      const Candidate& candidate = candidates_[index];
      Tried tried{.done = true, .run = {}, .error = {}, .limit = ranking_.limit()};
      if (candidate.bound <= tried.limit) {
        const std::optional<plan::ServingRun> like = run_before(candidate);
        lock.unlock();
        run(candidate, like, models, tried);
        lock.lock();
      }
      tried_[index] = std::move(tried);
      judge(models);
    }
  }

  std::optional<plan::ServingRun> run_before(const Candidate& candidate) const {
    return candidate.like != kNone && tried_[candidate.like].done ? tried_[candidate.like].run
                                                                  : std::nullopt;
  }

  void run(const Candidate& candidate, const std::optional<plan::ServingRun>& like, Models& models,
           Tried& tried) const {
    tried.error = nullptr;
    try {
      ServingModel model = model_of(candidate.plan, models);
      if (like) {
        tried.run = plan::serving_run_like(*like, candidate.plan, model);
      }
      if (!tried.run) {
        tried.run = plan::simulate_serving_within(tried.limit, candidate.plan, model, requests_);
      }
    } catch (...) {
      tried.error = std::current_exception();
    }
  }

  void judge(Models& models) {
    for (; judged_ < next_ && tried_[judged_].done && !error_; ++judged_) {
      const Candidate& candidate = candidates_[judged_];
      Tried& tried = tried_[judged_];
      // Under a limit that another thread had not yet found, the clock may end a run first.
      if (tried.error && candidate.bound <= ranking_.limit() && tried.limit > ranking_.limit()) {
        tried.limit = ranking_.limit();
        run(candidate, run_before(candidate), models, tried);
      }
      if (tried.error && candidate.bound <= ranking_.limit()) {
        error_ = tried.error;
        ended_ = true;
        return;
      }
      judge(candidate, tried.run);
    }
  }

  void judge(const Candidate& candidate, const std::optional<plan::ServingRun>& run) {
    const Seconds limit = ranking_.limit();
    if (candidate.bound > limit || !run || !run->simulation || run->simulation->makespan > limit) {
      ++outcome_.pruned;
      return;
    }
    ++outcome_.simulated;
    if (progress_) {
      progress_(fmt::format("{} of {} simulated", outcome_.simulated,
                            counted(std::ssize(candidates_), "plan")));
    }
    if (is_late(*run->simulation, search_.limits)) {
      ++outcome_.late;
      return;
    }
    ranking_.add({candidate.plan, *run->simulation});
  }

  Clock::time_point start_ = Clock::now();
  const Plan& base_;
  const ServingSearch& search_;
  const std::function<void(const std::string&)>& progress_;
  std::vector<plan::Request> requests_;
  std::int64_t longest_;
  bool has_prefixes_;
  ServingRanking ranking_;
  Models models_;
  std::vector<Candidate> candidates_;  // by bound
  std::mutex mutex_;                   // of all below, while threads try plans
  std::vector<Tried> tried_;
  std::size_t next_ = 0;
  std::size_t judged_ = 0;
  bool ended_ = false;        // no further plan is taken
  std::exception_ptr error_;  // of the first plan that has one
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
