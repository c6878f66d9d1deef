// SPDX-License-Identifier: Apache-2.0
#include "search/search.hpp"

#include <algorithm>
#include <chrono>
#include <limits>
#include <memory>
#include <queue>
#include <set>
#include <tuple>

#include "base/interrupt.hpp"
#include "base/parallel.hpp"
#include "search/empty_space.hpp"
#include "search/space.hpp"

namespace orrery::search {

namespace {

// Sizes of the batches that are evaluated in parallel; fixed, so that results do not depend on the
// number of threads.
constexpr std::size_t kGroupsAtOnce = 16;
constexpr std::size_t kPlansAtOnce = 32;
constexpr std::size_t kSeedGroups = 128;  // tried first, for an early answer

struct Candidate {
  Seconds bound;
  std::uint64_t order = 0;  // position in the space: ties go to the earlier plan
  std::uint32_t group = 0;
  Member member;
  bool operator>(const Candidate& other) const {
    return bound != other.bound ? bound > other.bound : order > other.order;
  }
};

struct OpenGroup {
  Seconds bound;
  std::uint32_t group = 0;
  std::uint64_t first_order = 0;
  bool operator>(const OpenGroup& other) const {
    return bound != other.bound ? bound > other.bound : group > other.group;
  }
};

template <typename T>
using MinHeap = std::priority_queue<T, std::vector<T>, std::greater<>>;

struct Ranked {
  Candidate candidate;
  Seconds time;
};

// Simulated or rejected.
struct Verdict {
  bool fits = false;
  Seconds time;
  ByteCount excess;
  std::string overflow;
};

// What one thread needs: a plan it rewrites and the costs it has cached.
struct Worker {
  explicit Worker(const plan::Plan& base) : plan(base), simulator(base) {}
  plan::Plan plan;
  plan::Simulator simulator;
};

class BestFirst {
 public:
  BestFirst(const plan::Plan& base, const Options& options)
      : options_(options), space_(base, options.constraints), groups_(space_.groups()) {
    const int jobs = options.jobs > 0 ? options.jobs : available_cores();
    for (int index = 0; index < jobs; ++index) {
      workers_.push_back(std::make_unique<Worker>(base));
    }
  }

  Outcome run(const std::function<void(const ProgressReport&)>& progress) {
    start_ = std::chrono::steady_clock::now();
    count_members();
    find_incumbent();
    bound_groups();
    while (has_work() && !stopped()) {
      open_groups();
      evaluate(next_batch());
      if (progress) {
        progress({outcome_.simulated, best_time(), gap()});
      }
    }
    return finish();
  }

 private:
  // Runs body(worker, index) for every index, spread over the workers.
  template <typename Body>
  void spread(std::size_t count, Body body) {
    const std::size_t jobs = workers_.size();
    parallel_for(jobs, static_cast<int>(jobs), [&](std::size_t worker) {
      for (std::size_t index = worker; index < count; index += jobs) {
        body(*workers_[worker], index);
      }
    });
  }

  void count_members() {
    std::vector<std::size_t> counts(groups_.size());
    spread(groups_.size(), [&](Worker&, std::size_t index) {
      counts[index] = space_.members(groups_[index]).size();
    });
    for (const std::size_t count : counts) {
      first_order_.push_back(static_cast<std::uint64_t>(outcome_.plans));
      outcome_.plans += static_cast<std::int64_t>(count);
    }
    if (outcome_.plans == 0) {
      explain_empty_space(space_.base(), options_.constraints);
    }
  }

  // Plans that are likely to fit, spread over the groups, so that there is an answer early: of each
  // the thriftiest and a fast one. The branch and bound passes over them later.
  void find_incumbent() {
    const std::size_t stride = std::max<std::size_t>(1, groups_.size() / kSeedGroups);
    std::vector<Candidate> seeds;
    for (std::size_t index = 0; index < groups_.size(); index += stride) {
      const std::vector<Member> members = space_.members(groups_[index]);
      if (members.empty()) {
        continue;
      }
      const auto thrift = [](const Member& a, const Member& b) {
        return std::tuple(a.recompute, a.zero_stage, a.sequence_parallel, -a.chunks) <
               std::tuple(b.recompute, b.zero_stage, b.sequence_parallel, -b.chunks);
      };
      const auto speed = [](const Member& a, const Member& b) {
        return std::tuple(a.recompute == plan::Recompute::None, a.zero_stage == 1,
                          a.sequence_parallel, a.chunks) <
               std::tuple(b.recompute == plan::Recompute::None, b.zero_stage == 1,
                          b.sequence_parallel, b.chunks);
      };
      for (const auto& member : {std::max_element(members.begin(), members.end(), thrift),
                                 std::max_element(members.begin(), members.end(), speed)}) {
        const auto position = static_cast<std::uint64_t>(member - members.begin());
        if (seeded_.insert(first_order_[index] + position).second) {
          seeds.push_back({Seconds(), first_order_[index] + position,
                           static_cast<std::uint32_t>(index), *member});
        }
      }
    }
    evaluate(seeds);
  }

  // What no plan can beat: the FLOPs of the network at the peak rate of every GPU.
  Seconds roofline() const {
    const plan::Plan& base = space_.base();
    const Flops flops = models::model_flops(base.network, {base.batch, base.sequence}, true);
    return flops / (base.cluster.gpu.peak_of(base.precision) * base.cluster.num_gpus());
  }

  // A group's bound is the least work any of its members can do; after an early end it is the
  // roofline.
  void bound_groups() {
    std::vector<OpenGroup> open(groups_.size());
    const Seconds least = roofline();
    spread(groups_.size(), [&](Worker& worker, std::size_t index) {
      open[index].group = static_cast<std::uint32_t>(index);
      open[index].first_order = first_order_[index];
      open[index].bound = least;
      if (!interrupted() && !out_of_time()) {
        open[index].bound = group_bound(worker, groups_[index], space_.members(groups_[index]));
      }
    });
    for (const OpenGroup& group : open) {
      pending_.push(group);
    }
  }

  Seconds group_bound(Worker& worker, const Group& group, const std::vector<Member>& members) {
    Seconds least(std::numeric_limits<double>::infinity());
    std::vector<std::pair<bool, plan::ContextParallel>> seen;
    for (Member member : members) {
      const std::pair<bool, plan::ContextParallel> layout{member.sequence_parallel,
                                                          member.context};
      if (std::find(seen.begin(), seen.end(), layout) != seen.end()) {
        continue;
      }
      seen.push_back(layout);
      member.recompute = plan::Recompute::None;  // recomputation only adds work
      space_.configure(group, member, worker.plan);
      least = std::min(least, worker.simulator.work_bound(worker.plan));
    }
    return least;
  }

  Seconds best_time() const {
    return ranked_.empty() ? Seconds(std::numeric_limits<double>::infinity())
                           : ranked_.front().time;
  }
  Seconds cutoff() const { return best_time() * (1.0 - options_.gap_fraction); }

  Seconds next_bound() const {
    Seconds bound(std::numeric_limits<double>::infinity());
    if (!pending_.empty()) {
      bound = pending_.top().bound;
    }
    return candidates_.empty() ? bound : std::min(bound, candidates_.top().bound);
  }
  bool has_work() const { return next_bound() < cutoff(); }
  double gap() const {
    const Seconds bound = std::min(next_bound(), best_time());
    return ranked_.empty() ? 1.0 : std::max(0.0, 1.0 - bound / best_time());
  }

  bool out_of_time() const {
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start_;
    return options_.time_limit.value() > 0 && elapsed.count() > options_.time_limit.value();
  }

  bool stopped() {
    outcome_.interrupted = interrupted();
    outcome_.timed_out = !outcome_.interrupted && out_of_time();
    return outcome_.interrupted || outcome_.timed_out;
  }

  // Opens every group that may hold a plan better than the best candidate known.
  void open_groups() {
    while (!pending_.empty() && pending_.top().bound < cutoff() &&
           (candidates_.empty() || pending_.top().bound <= candidates_.top().bound)) {
      std::vector<OpenGroup> batch;
      while (!pending_.empty() && batch.size() < kGroupsAtOnce &&
             pending_.top().bound < cutoff()) {
        batch.push_back(pending_.top());
        pending_.pop();
      }
      std::vector<std::vector<Candidate>> opened(batch.size());
      spread(batch.size(), [&](Worker& worker, std::size_t index) {
        opened[index] = candidates_of(worker, batch[index]);
      });
      for (const std::vector<Candidate>& candidates : opened) {
        for (const Candidate& candidate : candidates) {
          candidates_.push(candidate);
        }
      }
    }
  }

  std::vector<Candidate> candidates_of(Worker& worker, const OpenGroup& open) const {
    std::vector<Candidate> candidates;
    std::uint64_t order = open.first_order;
    for (const Member& member : space_.members(groups_[open.group])) {
      space_.configure(groups_[open.group], member, worker.plan);
      candidates.push_back(
          {worker.simulator.lower_bound(worker.plan), order++, open.group, member});
    }
    return candidates;
  }

  std::vector<Candidate> next_batch() {
    std::vector<Candidate> batch;
    const Seconds until = pending_.empty() ? Seconds(std::numeric_limits<double>::infinity())
                                           : pending_.top().bound;
    while (!candidates_.empty() && batch.size() < kPlansAtOnce &&
           candidates_.top().bound < cutoff() && candidates_.top().bound <= until) {
      if (!seeded_.contains(candidates_.top().order)) {
        batch.push_back(candidates_.top());
      }
      candidates_.pop();
    }
    return batch;
  }

  void evaluate(const std::vector<Candidate>& batch) {
    std::vector<Verdict> verdicts(batch.size());
    spread(batch.size(), [&](Worker& worker, std::size_t index) {
      verdicts[index] = judge(worker, batch[index]);
    });
    for (std::size_t index = 0; index < batch.size(); ++index) {
      const Verdict& verdict = verdicts[index];
      if (verdict.fits) {
        ++outcome_.simulated;
        rank({batch[index], verdict.time});
      } else {
        ++outcome_.infeasible;
        if (outcome_.closest_overflow.empty() || verdict.excess < least_excess_) {
          outcome_.closest_overflow = verdict.overflow;
          least_excess_ = verdict.excess;
        }
      }
    }
  }

  Verdict judge(Worker& worker, const Candidate& candidate) const {
    space_.configure(groups_[candidate.group], candidate.member, worker.plan);
    Verdict verdict;
    const plan::MemoryVerdict memory = worker.simulator.fits(worker.plan);
    verdict.fits = memory.fits;
    if (memory.fits) {
      verdict.time = worker.simulator.run(worker.plan).iteration_time;
    } else {
      verdict.excess = memory.excess;
      verdict.overflow = memory.text;
    }
    return verdict;
  }

  void rank(const Ranked& found) {
    const auto better = [](const Ranked& a, const Ranked& b) {
      return a.time != b.time ? a.time < b.time : a.candidate.order < b.candidate.order;
    };
    ranked_.insert(std::upper_bound(ranked_.begin(), ranked_.end(), found, better), found);
    const std::size_t keep = static_cast<std::size_t>(std::max(0, options_.top)) + 1;
    if (ranked_.size() > keep) {
      ranked_.pop_back();
    }
  }

  Found found_of(const Ranked& ranked) {
    Found found{space_.base(), {}};
    space_.configure(groups_[ranked.candidate.group], ranked.candidate.member, found.plan);
    found.simulation = workers_.front()->simulator.run(
        found.plan, {.record_spans = false, .interval_draws = plan::kIntervalDraws});
    return found;
  }

  // Plans whose bounds leave it open whether they win.
  std::int64_t num_unexplored() {
    std::int64_t plans = 0;
    while (!pending_.empty() && pending_.top().bound < cutoff()) {
      const std::size_t next = pending_.top().group + std::size_t{1};
      const std::uint64_t end = next < first_order_.size()
                                    ? first_order_[next]
                                    : static_cast<std::uint64_t>(outcome_.plans);
      const auto seeds = std::distance(seeded_.lower_bound(pending_.top().first_order),
                                       seeded_.lower_bound(end));
      plans += static_cast<std::int64_t>(end - pending_.top().first_order) - seeds;
      pending_.pop();
    }
    while (!candidates_.empty() && candidates_.top().bound < cutoff()) {
      plans += seeded_.contains(candidates_.top().order) ? 0 : 1;
      candidates_.pop();
    }
    return plans;
  }

  Outcome finish() {
    for (const Ranked& ranked : ranked_) {
      if (!outcome_.best) {
        outcome_.best = found_of(ranked);
      } else {
        outcome_.alternatives.push_back(found_of(ranked));
      }
    }
    if (outcome_.best || outcome_.interrupted || outcome_.timed_out) {
      outcome_.lower_bound = std::min(next_bound(), best_time());
      outcome_.gap_fraction = gap();
    }
    outcome_.unexplored = num_unexplored();
    outcome_.pruned = outcome_.plans - outcome_.simulated - outcome_.unexplored;
    outcome_.search_time = Seconds(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count());
    return std::move(outcome_);
  }

  const Options& options_;
  Space space_;
  std::vector<Group> groups_;
  std::vector<std::uint64_t> first_order_;  // of each group's members
  std::set<std::uint64_t> seeded_;          // evaluated before the search proper
  std::vector<std::unique_ptr<Worker>> workers_;
  MinHeap<OpenGroup> pending_;
  MinHeap<Candidate> candidates_;
  std::vector<Ranked> ranked_;  // best first
  ByteCount least_excess_;
  Outcome outcome_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace

Outcome search(const plan::Plan& base, const Options& options,
               const std::function<void(const ProgressReport&)>& progress) {
  return BestFirst(base, options).run(progress);
}

}  // namespace orrery::search
