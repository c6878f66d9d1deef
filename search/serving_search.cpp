// SPDX-License-Identifier: Apache-2.0
#include "search/serving_search.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <mutex>

#include "base/bytes.hpp"
#include "base/interrupt.hpp"
#include "base/parallel.hpp"
#include "base/text.hpp"
#include "base/worker_crew.hpp"
#include "search/serving_candidates.hpp"
#include "search/serving_rank.hpp"
#include "search/tree/kept_state.hpp"
#include "search/tree/time_limit.hpp"

namespace orrery::search {
namespace {

using plan::Plan;

constexpr std::size_t kRankedBytes = 5 * 8;

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

// What two searches have to agree on.
std::vector<InputHash> inputs_of(const Plan& base, const ServingSearch& search) {
  std::vector<InputHash> inputs = plan_hashes(base);
  std::string fixed;
  for (const auto& [field, values] : search.fixed) {
    fixed += field;
    for (const std::string& value : values) {
      fixed += "=" + value;
    }
    fixed += "\n";
  }
  const auto limit = [](const std::optional<Seconds>& most) {
    return hash_of(most ? fmt::format("{}", most->value()) : "none");
  };
  inputs.push_back({"--space", hash_of("serving")});
  inputs.push_back({"space (--fix)", hash_of(fixed)});
  inputs.push_back({"--top", hash_of(fmt::format("{}", search.top))});
  inputs.push_back({"--max-first-token", limit(search.limits.first_token_p99)});
  inputs.push_back({"--max-output-token", limit(search.limits.per_output_token_p99)});
  return inputs;
}

class Search {
 public:
  Search(const Plan& base, const ServingSearch& search,
         const std::function<void(const std::string&)>& progress)
      : limit_(search.time_limit, !search.resume.empty()),
        search_(search),
        progress_(progress),
        requests_(plan::generate_requests(base.serving->requests)),
        ranking_(arrive_over_time(requests_), search.top),
        kept_(search, Progress::Serving, [&] { return inputs_of(base, search); }),
        candidates_(
            serving_candidates(base, search.fixed, requests_,
                               {.known = [this] { return read_bounds(); },
                                .has_time = [this] { return !interrupted() && !limit_.is_over(); },
                                .made = [this](const auto& made) { keep_bounds(made); }},
                               models_)),
        tried_(candidates_.list.size()) {
    outcome_.plans = candidates_.plans;
    outcome_.infeasible = candidates_.infeasible;
    outcome_.streams = candidates_.streams;
    outcome_.closest = candidates_.closest;
    outcome_.nearest = candidates_.nearest;
  }

  ServingOutcome run() {
    go_on();
    WorkerCrew<ServingModels> threads(thread_count(search_.jobs), [](const ServingModels*) {
      return std::make_unique<ServingModels>();
    });
    threads.run([this](ServingModels& models, int) { try_plans(models); });
    if (error_) {
      std::rethrow_exception(error_);
    }
    if (judged_ < candidates_.list.size()) {
      (void)stops();  // the run of the last one may have been ended
    }
    save(/*always=*/true);
    finish(judged_, threads);
    return std::move(outcome_);
  }

 private:
  struct Ranked {
    std::size_t candidate;
    ServingFigures figures;
  };

  bool is_interrupted() const { return interrupted() || (search_.stop && search_.stop()); }

  // Whether no further plan is taken. A limit on time waits for the first one.
  bool stops() {
    if (!ended_) {
      outcome_.interrupted = is_interrupted();
      outcome_.timed_out = !outcome_.interrupted && next_ > 0 && limit_.is_over();
      ended_ = outcome_.interrupted || outcome_.timed_out;
    }
    return ended_;
  }

  // Whether runs under way are given up, by all threads.
  bool ends_runs() const { return interrupted() || (has_simulated_ && limit_.is_over()); }

  // A checkpoint holds the bounds made so far, in the order in which plans are listed, and once
  // there are all, what became of the plans in the order of these bounds.
  std::vector<Seconds> read_bounds() {
    const std::optional<std::string> bytes = kept_.read();
    if (!bytes) {
      return {};
    }
    ByteReader in(*bytes, search_.resume);
    std::vector<Seconds> bounds(in.count(8));
    for (Seconds& bound : bounds) {
      bound = Seconds(in.real());
      if (!(bound >= Seconds())) {
        in.fail("holds a bound that cannot be");
      }
    }
    verdicts_ = bytes->substr(bytes->size() - in.left());
    return bounds;
  }

  static void write_bounds(ByteWriter& out, const std::vector<Seconds>& bounds) {
    out.u64(bounds.size());
    for (const Seconds bound : bounds) {
      out.real(bound.value());
    }
  }

  void keep_bounds(const std::vector<Seconds>& made) {
    limit_.came_forward();
    kept_.save_when_due([&](ByteWriter& out) { write_bounds(out, made); });
    if (progress_) {
      progress_(fmt::format("{} bounded", counted(std::ssize(made), "plan")));
    }
  }

  void go_on() {
    if (!candidates_.bounded) {  // others may be the first of all: what is found now is not kept
      kept_.save([&](ByteWriter& out) { write_bounds(out, candidates_.bounds); });
      kept_.close();
    } else if (!verdicts_.empty()) {
      ByteReader in(verdicts_, search_.resume);
      read(in);
      in.end();
    }
  }

  void read(ByteReader& in) {
    judged_ = in.u64();
    for (std::int64_t* number : {&outcome_.pruned, &outcome_.simulated, &outcome_.late}) {
      *number = static_cast<std::int64_t>(in.u64());
    }
    const std::size_t ranked = in.count(kRankedBytes);
    const auto judged = static_cast<std::int64_t>(judged_);
    const std::size_t count = candidates_.list.size();
    if (count != candidates_.bounds.size() || judged_ > count || outcome_.pruned < 0 ||
        outcome_.late < 0 || outcome_.pruned + outcome_.simulated != judged ||
        outcome_.late + static_cast<std::int64_t>(ranked) != outcome_.simulated) {
      in.fail("holds counts that cannot be");
    }
    for (std::size_t index = 0; index < ranked; ++index) {
      Ranked one{in.u64(), {}};
      for (Seconds* figure : {&one.figures.makespan, &one.figures.first_token,
                              &one.figures.per_output_token, &one.figures.latency}) {
        *figure = Seconds(in.real());
        if (!(*figure >= Seconds())) {
          in.fail("holds a plan that cannot be");
        }
      }
      if (one.candidate >= judged_) {
        in.fail("holds a plan that was not tried");
      }
      rank(one);
    }
    next_ = judged_;
    has_simulated_ = outcome_.simulated > 0;
  }

  void write(ByteWriter& out) const {
    write_bounds(out, candidates_.bounds);
    for (const std::uint64_t count :
         {std::uint64_t{judged_}, static_cast<std::uint64_t>(outcome_.pruned),
          static_cast<std::uint64_t>(outcome_.simulated), static_cast<std::uint64_t>(outcome_.late),
          std::uint64_t{ranked_.size()}}) {
      out.u64(count);
    }
    for (const Ranked& one : ranked_) {
      out.u64(one.candidate);
      for (const Seconds figure : {one.figures.makespan, one.figures.first_token,
                                   one.figures.per_output_token, one.figures.latency}) {
        out.real(figure.value());
      }
    }
  }

  void save(bool always) {
    const auto state = [this](ByteWriter& out) { write(out); };
    always ? kept_.save(state) : kept_.save_when_due(state);
  }

  void rank(const Ranked& one) {
    ranked_.push_back(one);
    ranking_.add(candidates_.list[one.candidate].plan, one.figures);
  }

  // Candidates from `open` on were not looked at; the first of them has the least bound.
  void finish(std::size_t open, WorkerCrew<ServingModels>& threads) {
    const std::vector<ServingCandidate>& list = candidates_.list;
    outcome_.unexplored = static_cast<std::int64_t>(list.size() - open);
    outcome_.over_time = arrive_over_time(requests_);
    if (!ranking_.empty()) {
      outcome_.as_fast = ranking_.as_fast();
      const Seconds fastest = ranking_.least();
      outcome_.lower_bound = fastest;
      if (open < list.size()) {  // one without a bound is among the last
        const Seconds open_bound = std::min(list[open].bound, list.back().bound);
        outcome_.lower_bound = std::min(fastest, std::max(open_bound, arrivals()));
      }
      outcome_.gap_fraction = 1 - outcome_.lower_bound / fastest;
      add_found(threads);
    }
    outcome_.search_time = limit_.elapsed();
  }

  // No plan is done before the last request is there.
  Seconds arrivals() const {
    return to_seconds(requests_.back().arrival - requests_.front().arrival);
  }

  // Of those that an earlier run judged the figures alone are known.
  void add_found(WorkerCrew<ServingModels>& threads) {
    const std::vector<std::size_t> listed = ranking_.list();
    outcome_.found.resize(listed.size());
    threads.for_each(listed.size(), [&](ServingModels& models, std::size_t index) {
      const std::size_t candidate = ranked_[listed[index]].candidate;
      const Plan& plan = candidates_.list[candidate].plan;
      const std::optional<plan::ServingRun>& run = tried_[candidate].run;
      plan::ServingModel model = models.of(plan, models_);
      outcome_.found[index] = {
          plan, run ? *run->simulation : plan::simulate_serving(plan, model, requests_)};
    });
  }

  // What a thread found out of a plan; no run where its bound rules it out, or an error ended it.
  struct Tried {
    bool done = false;
    std::optional<plan::ServingRun> run;
    std::exception_ptr error;
    Seconds limit;     // of the run
    bool cut = false;  // by an early end: nothing is known
  };

  // Each thread takes the next plan and keeps the costs of the layouts that it met. Results are
  // judged in order, so that how far another thread is changes nothing: at most a plan is simulated
  // that one before it rules out, or whose run is known to be that of another. Plans that were
  // taken before an early end are judged, too, up to the first whose run it cut.
  void try_plans(ServingModels& models) {
    std::unique_lock lock(mutex_);
    while (next_ < candidates_.list.size() && !stops()) {
      const std::size_t index = next_++;
      const ServingCandidate& candidate = candidates_.list[index];
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

  std::optional<plan::ServingRun> run_before(const ServingCandidate& candidate) const {
    return candidate.like != ServingCandidate::kNone && tried_[candidate.like].done
               ? tried_[candidate.like].run
               : std::nullopt;
  }

  void run(const ServingCandidate& candidate, const std::optional<plan::ServingRun>& like,
           ServingModels& models, Tried& tried) const {
    tried.error = nullptr;
    try {
      plan::ServingModel model = models.of(candidate.plan, models_);
      if (like) {
        tried.run = plan::serving_run_like(*like, candidate.plan, model);
      }
      if (!tried.run) {
        tried.run = plan::simulate_serving_within(tried.limit, candidate.plan, model, requests_,
                                                  [&] { return tried.cut = ends_runs(); });
      }
    } catch (...) {
      tried.error = std::current_exception();
    }
  }

  void judge(ServingModels& models) {
    for (; judged_ < next_ && tried_[judged_].done && !error_; ++judged_) {
      const ServingCandidate& candidate = candidates_.list[judged_];
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
      if (tried.cut) {
        return;
      }
      judge(judged_, tried.run);
      limit_.came_forward();
    }
    save(/*always=*/false);
  }

  void judge(std::size_t index, const std::optional<plan::ServingRun>& run) {
    const Seconds limit = ranking_.limit();
    if (candidates_.list[index].bound > limit || !run || !run->simulation ||
        run->simulation->makespan > limit) {
      ++outcome_.pruned;
      return;
    }
    ++outcome_.simulated;
    has_simulated_ = true;
    if (progress_) {
      progress_(fmt::format("{} of {} simulated", outcome_.simulated,
                            counted(std::ssize(candidates_.list), "plan")));
    }
    if (is_late(*run->simulation, search_.limits)) {
      ++outcome_.late;
      return;
    }
    rank({index, figures_of(*run->simulation)});
  }

  TimeLimit limit_;
  const ServingSearch& search_;
  const std::function<void(const std::string&)>& progress_;
  std::vector<plan::Request> requests_;
  ServingRanking ranking_;
  std::vector<Ranked> ranked_;  // in the order in which they were ranked
  KeptState kept_;
  std::string verdicts_;  // of the checkpoint
  ServingModels models_;
  ServingCandidates candidates_;
  std::mutex mutex_;  // of all below but one, while threads try plans
  std::vector<Tried> tried_;
  std::size_t next_ = 0;
  std::size_t judged_ = 0;
  bool ended_ = false;        // no further plan is taken
  std::exception_ptr error_;  // of the first plan that has one
  std::atomic<bool> has_simulated_ = false;
  ServingOutcome outcome_;
};

}  // namespace

ServingOutcome search_serving(const Plan& base, const ServingSearch& search,
                              const std::function<void(const std::string&)>& progress) {
  return Search(base, search, progress).run();
}

}  // namespace orrery::search
