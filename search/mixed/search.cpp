// SPDX-License-Identifier: Apache-2.0
#include "search/mixed/search.hpp"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <memory>
#include <utility>

#include "base/parallel.hpp"
#include "search/mixed/answer.hpp"
#include "search/mixed/checkpoint.hpp"
#include "search/mixed/early_plan.hpp"
#include "search/mixed/empty_space.hpp"
#include "search/mixed/limits.hpp"
#include "search/mixed/options_check.hpp"
#include "search/mixed/state.hpp"

namespace orrery::search {

namespace {

// Work of the nodes that are evaluated side by side: a share of all before them.
constexpr std::uint64_t kLeastWork = 320;
constexpr std::uint64_t kMostWork = 40'000;
constexpr std::uint64_t kShareOfWork = 8;
// After an early end without a plan: arrangements that are tried, nodes of each.
constexpr std::size_t kFirstTries = 64;
constexpr int kFirstSteps = 200;
constexpr Seconds kFirstTime(5.0);
// Work in units of worker.hpp: a replay of memory beside its passes, and so many passes of a
// pipeline.
constexpr std::uint64_t kOfReplay = 8'000;
constexpr std::uint64_t kPassesOfUnit = 32;
constexpr std::size_t kSpare = 4;  // kept for each that is listed: some fail the replay of memory

class Search {
 public:
  using Progress = std::function<void(const ProgressReport&)>;

  Search(const plan::MixedPlan& base, const Options& options, const Progress& progress)
      : base_(base),
        options_(options),
        progress_(progress),
        keep_(kSpare * static_cast<std::size_t>(options.top) + 1),
        limits_(options),
        early_(early_plan()),
        workers_(thread_count(options.jobs),
                 [&](const MixedWorker* first) {
                   return first != nullptr
                              ? std::make_unique<MixedWorker>(*first)
                              : std::make_unique<MixedWorker>(base, options.constraints, [this] {
                                  tell();
                                  return limits_.ends_list();
                                });
                 }),
        checkpoint_(base, options) {
    outcome_.whole_space = workers_.leader().space().is_whole();
    if (workers_.leader().space().leaves_out()) {
      outcome_.bound_left_out = workers_.leader().bound_left_out();
    }
  }

  MixedOutcome run() {
    // What it goes on from is about all arrangements; Ctrl-C may have ended their list.
    const bool reads = outcome_.whole_space || options_.resume.empty();
    if (!reads || !checkpoint_.read(workers_.leader(), state_)) {
      open_all();
      if (!outcome_.whole_space || is_stopped()) {  // not all have a bound
        checkpoint_.close();
      }
      checkpoint_.save(state_);
      limits_.came_forward();
    }
    while (has_work() && !is_stopped() && !limits_.exceeds_half()) {
      evaluate(next());
      limits_.came_forward();
      checkpoint_.save_when_due(state_);
      tell();
    }
    checkpoint_.save(state_);
    const bool is_open = has_work() || !outcome_.whole_space;
    const bool none = ranked_.empty() && is_open;
    if (none && !early_) {
      find_first();
    }
    const bool beside = none || early_is_best();
    outcome_.simulated += early_is_best() ? 1 : 0;
    close();
    if (beside && outcome_.best) {  // it is still below one of the open nodes, or was not listed
      std::int64_t& open = outcome_.unexplored > 0 ? outcome_.unexplored : outcome_.pruned;
      open > 0 ? --open : ++outcome_.plans;
    }
    outcome_.work = limits_.used();
    outcome_.search_time = limits_.elapsed();
    return std::move(outcome_);
  }

 private:
  void open_all() {
    std::vector<MixedNode> roots(workers_.leader().space().arrangements().size());
    // Some are enough to look for a first plan. After an early end none has a bound.
    const std::size_t stride = std::max<std::size_t>(1, roots.size() / kFirstTries);
    const std::uint64_t work = work_of(MixedNode()) * roots.size();
    const bool too_many = limits_.exceeds_half(work);
    limits_.use(too_many ? kFirstTries : work);
    std::atomic<bool> skips = false;
    workers_.for_each(roots.size(), [&](MixedWorker& worker, std::size_t index) {
      if ((too_many || limits_.is_overdue()) && index % stride != 0) {
        skips = true;
        return;
      }
      roots[index] = worker.root(static_cast<int>(index), !too_many && !is_stopped());
    });
    outcome_.whole_space = outcome_.whole_space && !skips;
    for (std::size_t index = 0; index < roots.size(); ++index) {
      if (roots[index].plans > 0) {
        outcome_.plans += roots[index].plans;
        state_.push(roots[index]);
        roots_.push_back(roots[index]);
      }
    }
    if (outcome_.plans == 0 && outcome_.whole_space) {
      explain_empty_mixed_space(base_, options_.constraints);
    }
  }

  std::optional<MixedFound> early_plan() const {
    if (options_.most_work > 0) {  // itself a search for any plan
      return std::nullopt;
    }
    return early_mixed_plan(base_, options_, [this](Seconds time) {
      if (progress_) {
        ProgressReport report;
        report.simulated = 1;
        report.best = time;
        progress_(report);
      }
    });
  }
  void tell() const {
    if (progress_) {
      progress_(found_so_far());
    }
  }
  bool early_is_best() const {
    return early_ && (ranked_.empty() || early_->simulation.iteration_time < best_time());
  }
  bool found_any() const { return early_ || !ranked_.empty(); }
  Seconds best_found() const {
    return early_is_best() ? early_->simulation.iteration_time : best_time();
  }
  Seconds best_time() const { return ranked_.front().time; }
  bool has_work() const {
    return !heap_.empty() &&
           (ranked_.empty() || heap_.top().bound < best_time() * (1.0 - options_.gap_fraction));
  }
  bool is_stopped() const { return limits_.is_stopped(); }
  // Lists take as long as they are.
  void use(const MixedNode& node) {
    const std::uint64_t passes = node.schedule < 0 ? 0 : workers_.leader().passes_of(node);
    limits_.use(work_of(node) + passes / kPassesOfUnit);
  }

  std::vector<MixedNode> next() {
    std::vector<MixedNode> batch;
    const std::uint64_t most = std::clamp(work_ / kShareOfWork, kLeastWork, kMostWork);
    for (std::uint64_t work = 0; has_work() && work < most; heap_.pop()) {
      batch.push_back(heap_.top());
      work += work_of(batch.back());
    }
    return batch;
  }

  void evaluate(const std::vector<MixedNode>& batch) {
    std::vector<std::optional<MixedStep>> steps(batch.size());
    MixedKnown known;
    known.found = found_any() || limits_.wants_any();
    if (!outcome_.closest_overflow.empty()) {
      known.closest = least_excess_;
    }
    workers_.for_each(batch.size(), [&](MixedWorker& worker, std::size_t index) {
      if (!is_stopped()) {
        steps[index] = worker.step(batch[index], known);
      }
    });
    if (std::any_of(steps.begin(), steps.end(), [](const auto& step) { return !step; })) {
      checkpoint_.cut(batch, state_);
    }
    reject_overflows(batch, steps);
    for (std::size_t index = 0; index < batch.size(); ++index) {
      if (steps[index]) {
        take(batch[index], *steps[index]);
        work_ += work_of(batch[index]);
        use(batch[index]);
      } else {
        heap_.push(batch[index]);
      }
    }
  }

  // After an early end that no plan came before: the first plan below arrangements spread over all.
  // It stays among those that the search has left open.
  void find_first() {
    std::sort(roots_.begin(), roots_.end(),
              [](const MixedNode& a, const MixedNode& b) { return a.bound < b.bound; });
    const Seconds end = limits_.elapsed() + kFirstTime;
    const std::size_t tries = std::min(kFirstTries, roots_.size());
    for (std::size_t tried = 0; tried < tries && ranked_.empty(); ++tried) {
      if (limits_.has_limit() ? limits_.exceeds_all() || is_stopped() : limits_.elapsed() > end) {
        return;
      }
      int steps = kFirstSteps;
      find_below(roots_[tried * roots_.size() / tries], steps);
    }
  }

  // Children from both ends of their bounds: the fastest, and the slowest, which hold least.
  void find_below(const MixedNode& node, int& steps) {
    if (--steps < 0) {
      return;
    }
    use(node);
    MixedKnown known;
    known.found = !outcome_.closest_overflow.empty() || limits_.wants_any();
    std::vector<std::optional<MixedStep>> tried = {workers_.leader().step(node, known)};
    reject_overflows({node}, tried);
    MixedStep& step = *tried.front();
    if (step.misfit) {
      misses(*step.misfit);
    }
    if (step.time) {
      ++outcome_.simulated;
      state_.rank({node, *step.time}, keep_);
    }
    std::sort(step.children.begin(), step.children.end(),
              [](const MixedNode& a, const MixedNode& b) { return a.bound < b.bound; });
    const std::size_t count = step.children.size();
    for (std::size_t k = 0; k < count && ranked_.empty() && steps > 0; ++k) {
      find_below(step.children[k % 2 == 0 ? k / 2 : count - 1 - k / 2], steps);
    }
  }

  void take(const MixedNode& node, const MixedStep& step) {
    for (const MixedNode& child : step.children) {
      state_.push(child);
    }
    outcome_.pruned += step.same;
    outcome_.infeasible += step.misfits;
    outcome_.pruned += step.misfits;
    if (step.misfit) {
      misses(*step.misfit);
    }
    if (step.time) {
      ++outcome_.simulated;
      state_.rank({node, *step.time}, keep_);
    }
  }

  ByteCount replay_reserve() const {
    return options_.replay_reserve.value_or(base_.shape.memory_reserve);
  }

  // The fastest plans of a batch, as far as they do not fit when memory is replayed, become
  // misfits.
  void reject_overflows(const std::vector<MixedNode>& batch,
                        std::vector<std::optional<MixedStep>>& steps) {
    std::vector<std::pair<Seconds, std::size_t>> fastest;
    for (std::size_t index = 0; index < steps.size(); ++index) {
      if (steps[index] && steps[index]->time &&
          (ranked_.empty() || *steps[index]->time < best_time())) {
        fastest.emplace_back(*steps[index]->time, index);
      }
    }
    std::sort(fastest.begin(), fastest.end());
    for (const auto& [time, index] : fastest) {
      limits_.use(kOfReplay + workers_.leader().passes_of(batch[index]));
      const plan::MemoryVerdict verdict =
          workers_.leader().replay(batch[index], replay_reserve(), workers_.size());
      if (verdict.fits) {
        return;
      }
      steps[index]->time.reset();
      steps[index]->misfits = 1;
      steps[index]->misfit = verdict;
    }
  }

  void misses(const plan::MemoryVerdict& verdict) {
    if (outcome_.closest_overflow.empty() || verdict.excess < least_excess_) {
      least_excess_ = verdict.excess;
      outcome_.closest_overflow = verdict.text;
    }
  }

  void close() {
    if (has_work() || !outcome_.whole_space) {
      outcome_.interrupted = limits_.is_interrupted();
      outcome_.timed_out = !outcome_.interrupted;
    }
    const bool ended = outcome_.interrupted || outcome_.timed_out;
    const Seconds open =
        open_bound(heap_.empty() ? (found_any() ? best_found() : Seconds()) : heap_.top().bound);
    for (const MixedNode& node : heap_.nodes()) {
      const bool decided = !ranked_.empty() && node.bound >= best_time();
      (decided || !ended ? outcome_.pruned : outcome_.unexplored) += node.plans;
    }
    if (!found_any()) {
      outcome_.lower_bound = open;
      return;
    }
    outcome_.lower_bound = std::min(open, best_found());
    outcome_.gap_fraction = std::max(0.0, 1.0 - outcome_.lower_bound / best_found());
    draw_intervals();
  }

  void draw_intervals() {
    const MixedFound* early = early_is_best() ? &*early_ : nullptr;
    const std::size_t most = static_cast<std::size_t>(options_.top) + (early != nullptr ? 0 : 1);
    const std::vector<MixedNode> plans = fitting_plans(ranked_, most, replay_reserve(), workers_);
    const std::size_t count = plans.size() + (early != nullptr ? 1 : 0);
    const int draws = options_.interval_draws;
    Drawing drawing(options_, limits_.elapsed(), count * static_cast<std::size_t>(draws),
                    {outcome_.simulated, best_found(), outcome_.gap_fraction, outcome_.lower_bound},
                    progress_);
    std::vector<MixedFound> found = drawn_plans(early, plans, draws, drawing, workers_);
    outcome_.best = std::move(found.front());
    outcome_.alternatives.assign(std::make_move_iterator(found.begin() + 1),
                                 std::make_move_iterator(found.end()));
  }

  // What no plan that is not known is faster than, where `listed` is the least bound of the nodes
  // left: 0 where an early end left out some.
  Seconds open_bound(Seconds listed) const {
    return outcome_.whole_space ? std::min(listed, outcome_.bound_left_out.value_or(listed))
                                : Seconds();
  }

  ProgressReport found_so_far() const {
    ProgressReport report;
    report.simulated = outcome_.simulated + (early_ ? 1 : 0);
    report.bound = open_bound(heap_.empty() ? Seconds() : heap_.top().bound);
    if (found_any()) {
      report.best = best_found();
      report.gap_fraction = std::max(0.0, 1.0 - report.bound / report.best);
    }
    return report;
  }

  const plan::MixedPlan& base_;
  const Options& options_;
  const Progress& progress_;
  std::size_t keep_;
  MixedLimits limits_;               // the first worker begins it
  std::optional<MixedFound> early_;  // before the arrangements are listed
  MixedState state_;
  MixedState::Heap& heap_ = state_.heap;
  std::vector<MixedNode>& roots_ = state_.roots;
  std::vector<MixedState::Ranked>& ranked_ = state_.ranked;
  std::uint64_t& work_ = state_.work;
  ByteCount& least_excess_ = state_.least_excess;
  MixedOutcome& outcome_ = state_.outcome;
  WorkerCrew<MixedWorker> workers_;  // the first lists the arrangements
  MixedCheckpoint checkpoint_;
};

}  // namespace

MixedOutcome search_mixed(const plan::MixedPlan& base, const Options& options,
                          const std::function<void(const ProgressReport&)>& progress) {
  check_mixed_options(base, options);
  return Search(base, options, progress).run();
}

}  // namespace orrery::search
