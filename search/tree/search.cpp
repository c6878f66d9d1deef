// SPDX-License-Identifier: Apache-2.0
#include "search/tree/search.hpp"

#include <algorithm>
#include <chrono>
#include <memory>
#include <tuple>

#include "base/interrupt.hpp"
#include "base/parallel.hpp"
#include "search/space/empty_space.hpp"
#include "search/tree/checkpoint.hpp"
#include "search/tree/drawing.hpp"
#include "search/tree/frontier.hpp"
#include "search/tree/memory_check.hpp"
#include "search/tree/projection.hpp"
#include "search/tree/rank_pool.hpp"
#include "search/tree/time_limit.hpp"
#include "search/tree/worker_pool.hpp"

namespace orrery::search {

namespace {

constexpr std::size_t kSeedsAtOnce = 16;  // between two looks at the clock
constexpr Seconds kToCount(1);            // of the plans, after a limit on time

class BestFirst {
 public:
  BestFirst(const plan::Plan& base, const Options& options)
      : options_(options),
        limit_(options.time_limit, !options.resume.empty()),
        space_(base, options.constraints),
        groups_(space_.groups()),
        plans_(count_plans()),
        tree_{space_, groups_, first_order_},
        frontier_(tree_, options.gap_fraction, options.top, wanted(options)),
        inputs_(make_inputs()),
        pool_(make_pool()) {
    if (options_.record != nullptr) {
      pool_->time_nodes();
    }
  }

  Outcome run(const std::function<void(const ProgressReport&)>& progress) {
    progress_ = progress;
    if (!has_resumed()) {
      save(nullptr);
      try_seeds();
      evaluate(frontier_.groups());
      limit_.came_forward();
    }
    while (frontier_.has_work() && !is_stopped() && !is_enough()) {
      evaluate(frontier_.next());
      limit_.came_forward();
      save_when_due();
    }
    if (!is_cut_) {
      save(&frontier_);
    }
    return finish();
  }

 private:
  static std::size_t wanted(const Options& options) {
    return options.proves_top ? static_cast<std::size_t>(options.top) + 1 : 1;
  }

  std::unique_ptr<WorkerPool> make_pool() {
    const int jobs = thread_count(options_.jobs);
    if (is_spread() && is_whole_) {
      return std::make_unique<RankPool>(tree_, jobs, *options_.ranks, inputs_);
    }
    return std::make_unique<WorkerPool>(tree_, jobs, options_.kept_costs);
  }

  bool is_spread() const { return options_.ranks != nullptr && options_.ranks->size() > 1; }

  // Only where they are of use: hashing takes some milliseconds.
  std::vector<InputHash> make_inputs() const {
    return compares() && is_whole_ ? input_hashes(space_, groups_, options_)
                                   : std::vector<InputHash>();
  }

  bool compares() const {
    return is_spread() || !options_.checkpoint.empty() || !options_.resume.empty();
  }

  // Groups that nobody waits for to be counted are left out: the answer is of those before them,
  // and proves nothing of the others. Where spaces are compared only Ctrl-C does that.
  std::int64_t count_plans() {
    std::int64_t plans = 0;
    for (std::size_t index = 0; index < groups_.size(); ++index) {
      const bool is_late = plans > 0 && options_.time_limit.value() > 0 &&
                           elapsed() > options_.time_limit + kToCount;
      if (index > 0 && (interrupted() || (!compares() && (is_late || is_interrupted())))) {
        groups_.resize(index);
        is_whole_ = false;
        return plans;
      }
      first_order_.push_back(static_cast<std::uint64_t>(plans));
      plans += space_.num_members(groups_[index]);
    }
    if (plans == 0) {
      explain_empty_space(space_.base(), options_.constraints);
    }
    return plans;
  }

  // They are merged together, so that few memories are replayed. A limit on time waits for a first
  // plan.
  void try_seeds() {
    const Batch seeds = frontier_.seeds();
    for (std::size_t first = 0; first < seeds.nodes.size();) {
      Batch round;
      round.task = seeds.task;
      std::vector<Done> done;
      bool found = false;
      const auto ends = [&] { return is_out_of_time() && frontier_.num_simulated() > 0; };
      do {
        const auto begin = seeds.nodes.begin() + static_cast<std::ptrdiff_t>(first);
        const std::size_t count = std::min(kSeedsAtOnce, seeds.nodes.size() - first);
        Batch some;
        some.task = seeds.task;
        some.nodes.assign(begin, begin + static_cast<std::ptrdiff_t>(count));
        for (Done& one : run(some, [&] { return is_interrupted() || ends(); })) {
          found = found || (one.outcomes && one.outcomes->time);
          done.push_back(std::move(one));
        }
        round.nodes.insert(round.nodes.end(), some.nodes.begin(), some.nodes.end());
        first += count;
      } while (first < seeds.nodes.size() && !(found && is_out_of_time() && !ends()));
      merge(round, done);
    }
  }

  void evaluate(const Batch& batch) {
    std::vector<Done> done = run(batch, [this] { return is_stopped(); });
    merge(batch, done);
  }

  std::vector<Done> run(const Batch& batch, const std::function<bool()>& stop) {
    if (options_.record != nullptr && !options_.record->empty()) {
      options_.record->back().between = thread_time() - batch_end_;
    }
    std::vector<Done> done = pool_->run(batch, stop);
    batch_end_ = thread_time();
    record(batch, done);
    return done;
  }

  void merge(const Batch& batch, std::vector<Done>& done) {
    if (!std::all_of(done.begin(), done.end(), [](const Done& one) { return one.outcomes; })) {
      cut(batch);
    }
    reject_overflows(batch, done);
    frontier_.take(batch, done);
    if (progress_) {
      progress_(found_so_far());
    }
  }

  ProgressReport found_so_far() const {
    return {frontier_.num_simulated(), frontier_.best_time(), frontier_.gap(),
            frontier_.lower_bound()};
  }

  // The fastest plans of a batch, as many as the search is for, as far as they do not fit when
  // memory is replayed, become misfits.
  void reject_overflows(const Batch& batch, std::vector<Done>& done) {
    std::vector<std::tuple<Seconds, std::uint64_t, std::size_t>> fastest;
    for (std::size_t index = 0; index < done.size(); ++index) {
      const Node& node = batch.nodes[index];
      if (node.is_plan() && done[index].outcomes && done[index].outcomes->time &&
          *done[index].outcomes->time <= frontier_.last_wanted()) {
        fastest.emplace_back(*done[index].outcomes->time, node.position(), index);
      }
    }
    std::sort(fastest.begin(), fastest.end());
    std::size_t missing = wanted(options_);
    for (const auto& [time, position, index] : fastest) {
      const plan::MemoryVerdict verdict =
          pool_->leader().replay(batch.nodes[index], replay_reserve(), pool_->jobs());
      replay_work_ += tree_.work_of(Task::Replay, batch.nodes[index]);
      if (verdict.fits) {
        if (--missing == 0) {
          return;
        }
        continue;
      }
      Outcomes& outcomes = *done[index].outcomes;
      outcomes.time.reset();
      outcomes.misfits.push_back({position, 1, 1});
      outcomes.overflow = {verdict.text, verdict.excess, batch.nodes[index], /*replayed=*/true};
    }
  }

  ByteCount replay_reserve() const {
    return options_.replay_reserve.value_or(space_.base().memory_reserve);
  }

  // A batch was stopped before its end. The answer uses what there is of it, but another search
  // goes on from the state before it, or from the beginning: only whole batches are the same
  // everywhere.
  void cut(const Batch& batch) {
    is_cut_ = true;
    if (batch.task == Task::Visit) {
      frontier_.put_back(batch);
      save(&frontier_);
      (void)frontier_.next();
    }
  }

  void record(const Batch& batch, const std::vector<Done>& done) {
    if (options_.record == nullptr) {
      return;
    }
    const std::vector<Handout::Item> items = pool_->items(batch);
    BatchRecord record;
    for (std::size_t index = 0; index < done.size(); ++index) {
      record.nodes.push_back({done[index].cpu, items[index].item_class, items[index].work});
    }
    options_.record->push_back(std::move(record));
  }

  bool has_resumed() {
    return is_whole_ && !options_.resume.empty() &&
           read_checkpoint(options_.resume, inputs_, frontier_);
  }

  void save(const Frontier* frontier) {
    if (is_whole_ && !options_.checkpoint.empty()) {
      write_checkpoint(options_.checkpoint, inputs_, frontier);
      saved_ = std::chrono::steady_clock::now();
    }
  }

  void save_when_due() {
    const std::chrono::duration<double> since = std::chrono::steady_clock::now() - saved_;
    if (!is_cut_ && since.count() >= options_.checkpoint_every.value()) {
      save(&frontier_);
    }
  }

  Seconds elapsed() const { return limit_.elapsed(); }
  bool is_out_of_time() const { return limit_.is_over(); }
  bool is_interrupted() const { return interrupted() || (options_.stop && options_.stop()); }
  bool is_stopped() const { return !is_whole_ || is_interrupted() || is_out_of_time(); }
  std::uint64_t work() const { return frontier_.work() + replay_work_; }
  bool is_enough() const { return options_.most_work > 0 && work() >= options_.most_work; }

  Found found_of(const Frontier::Ranked& ranked, const Outcomes* interval) {
    Worker& worker = pool_->leader();
    Found found{worker.configure(ranked.node), {}};
    found.simulation = worker.simulator().run(found.plan);
    if (interval != nullptr && interval->time) {
      found.simulation.interval_low = *interval->time;
      found.simulation.interval_high = interval->high;
    }
    return found;
  }

  // The plans of the answer; they fit when their memory is replayed. The best one was asked before.
  std::vector<Frontier::Ranked> listed() {
    const std::vector<Frontier::Ranked>& ranked = frontier_.ranked();
    const std::size_t most = static_cast<std::size_t>(options_.top) + 1;
    std::vector<Frontier::Ranked> plans(ranked.begin(), ranked.begin() + (ranked.empty() ? 0 : 1));
    for (std::size_t next = 1; next < ranked.size() && plans.size() < most;) {
      Batch batch;
      batch.task = Task::Replay;
      batch.known.replay_reserve = replay_reserve();
      const std::size_t end = std::min(ranked.size(), next + most - plans.size());
      for (std::size_t index = next; index < end; ++index) {
        batch.nodes.push_back(ranked[index].node);
      }
      const std::vector<Done> replayed = pool_->run(batch, [] { return false; });
      for (const Done& one : replayed) {
        if (one.outcomes->overflow.text.empty()) {
          plans.push_back(ranked[next]);
        }
        ++next;
      }
    }
    return plans;
  }

  // Their draws take longer than anything else at the end, so that everybody takes part.
  std::vector<Done> intervals(const std::vector<Frontier::Ranked>& plans) {
    const int draws = options_.interval_draws;
    Drawing drawing(options_, elapsed(), plans.size() * static_cast<std::size_t>(draws),
                    found_so_far(), progress_);
    Batch batch;
    batch.task = Task::Interval;
    batch.known.interval_draws = draws;
    batch.known.drawing = drawing.left();
    for (const Frontier::Ranked& ranked : plans) {
      batch.nodes.push_back(ranked.node);
    }
    return pool_->run(batch, [&] { return drawing.is_over(); });
  }

  // What a misfit needs when it is replayed.
  Overflow needed(Overflow misfit) {
    if (misfit.misfit) {
      plan::MemoryVerdict counted;
      counted.fits = false;
      counted.text = misfit.replayed ? "" : misfit.text;
      counted.excess = misfit.replayed ? ByteCount() : misfit.excess;
      counted = replayed_misfit(pool_->leader().configure(*misfit.misfit), counted,
                                replay_reserve(), pool_->jobs());
      misfit.excess = counted.excess;
      misfit.text = counted.text.empty() ? misfit.text : counted.text;
    }
    return misfit;
  }

  // The closest by categories and the closest of those that fit by them miss different things:
  // what both need when they are replayed is compared, but not where the search ended early.
  void tell_closest(Outcome& outcome) {
    Overflow closest = frontier_.closest();
    Overflow replayed = frontier_.closest_replayed();
    outcome.closest_by_categories = closest.misfit && replayed.text.empty();
    if (!outcome.best && !outcome.interrupted && !outcome.timed_out) {
      closest = needed(std::move(closest));
      replayed = needed(std::move(replayed));
    }
    if (replayed.is_closer_than(closest)) {
      closest = std::move(replayed);
    }
    outcome.closest_overflow = closest.text;
    if (!outcome.best && closest.misfit) {
      outcome.closest = pool_->leader().configure(*closest.misfit);
    }
  }

  Outcome finish() {
    Outcome outcome;
    outcome.plans = plans_;
    if (frontier_.has_work()) {
      outcome.interrupted = is_interrupted();
      outcome.timed_out = !outcome.interrupted;
    }
    outcome.top_is_proven = options_.proves_top && !frontier_.has_work();
    const std::vector<Frontier::Ranked> plans = listed();
    const bool asked = options_.interval_draws > 0 && !plans.empty();
    const std::vector<Done> drawn = asked ? intervals(plans) : std::vector<Done>();
    for (std::size_t index = 0; index < plans.size(); ++index) {
      const bool has = asked && drawn[index].outcomes;
      Found found = found_of(plans[index], has ? &*drawn[index].outcomes : nullptr);
      if (!outcome.best) {
        outcome.best = std::move(found);
      } else {
        outcome.alternatives.push_back(std::move(found));
      }
    }
    outcome.lower_bound = frontier_.lower_bound();
    if (outcome.best || outcome.interrupted || outcome.timed_out) {
      outcome.gap_fraction = frontier_.gap();
    }
    tell_closest(outcome);
    outcome.work = work();
    outcome.simulated = frontier_.num_simulated();
    outcome.infeasible = frontier_.num_infeasible();
    outcome.unexplored = frontier_.num_unexplored();
    outcome.pruned = outcome.plans - outcome.simulated - outcome.unexplored;
    outcome.search_time = elapsed();
    return outcome;
  }

  const Options& options_;
  TimeLimit limit_;
  Space space_;
  std::vector<Group> groups_;
  std::vector<std::uint64_t> first_order_;  // of each group's members
  bool is_whole_ = true;                    // all groups of the space were counted
  std::int64_t plans_;
  Tree tree_;
  Frontier frontier_;
  std::vector<InputHash> inputs_;
  std::unique_ptr<WorkerPool> pool_;
  std::uint64_t replay_work_ = 0;  // of plans that were found: what frontiers do not count
  bool is_cut_ = false;
  Seconds batch_end_;  // in processor time of this thread
  std::chrono::steady_clock::time_point saved_ = std::chrono::steady_clock::now();
  std::function<void(const ProgressReport&)> progress_;
};

}  // namespace

Outcome search(const plan::Plan& base, const Options& options,
               const std::function<void(const ProgressReport&)>& progress) {
  return BestFirst(base, options).run(progress);
}

}  // namespace orrery::search
