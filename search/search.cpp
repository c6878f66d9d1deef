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
#include "base/random.hpp"
#include "search/empty_space.hpp"
#include "search/worker.hpp"

namespace orrery::search {

namespace {

// Sizes of the batches that are evaluated in parallel; fixed, so that results do not depend on the
// number of threads.
constexpr std::size_t kGroupsAtOnce = 64;
constexpr std::size_t kNodesAtOnce = 128;
constexpr std::size_t kSeedGroups = 64;  // tried first, for an early answer

struct OpenGroup {
  Seconds bound;
  std::uint32_t group = 0;
  bool operator>(const OpenGroup& other) const {
    return bound != other.bound ? bound > other.bound : group > other.group;
  }
};

template <typename T>
using MinHeap = std::priority_queue<T, std::vector<T>, std::greater<>>;

struct Ranked {
  Node node;
  Seconds time;
};

class BestFirst {
 public:
  BestFirst(const plan::Plan& base, const Options& options)
      : options_(options), space_(base, options.constraints), groups_(space_.groups()) {
    const int jobs = options.jobs > 0 ? options.jobs : available_cores();
    for (int index = 0; index < jobs; ++index) {
      workers_.push_back(std::make_unique<Worker>(space_, groups_, first_order_));
    }
  }

  Outcome run(const std::function<void(const ProgressReport&)>& progress) {
    start_ = std::chrono::steady_clock::now();
    count_plans();
    find_incumbent();
    bound_groups();
    while (has_work() && !stopped()) {
      if (next_is_group()) {
        open_groups();
      } else {
        visit(next_nodes());
      }
      if (progress) {
        progress({outcome_.simulated, best_time(), gap()});
      }
    }
    return finish();
  }

 private:
  // Runs body(worker, index) for every index. Groups of the same stages and micro-batches always go
  // to the same worker, which then has their lists and block costs already.
  template <typename GroupOf, typename Body>
  void spread(std::size_t count, GroupOf group_of, Body body) {
    const std::size_t jobs = workers_.size();
    parallel_for(jobs, static_cast<int>(jobs), [&](std::size_t worker) {
      for (std::size_t index = 0; index < count; ++index) {
        const Group& group = groups_[group_of(index)];
        const std::int64_t micro_batches = space_.base().batch / (group.micro_batch * group.dp);
        const std::uint64_t hash = mix64(static_cast<std::uint64_t>(micro_batches) * 65'536 +
                                         static_cast<std::uint64_t>(group.pp));
        if (hash % jobs == worker) {
          body(*workers_[worker], index);
        }
      }
    });
  }

  void count_plans() {
    for (const Group& group : groups_) {
      first_order_.push_back(static_cast<std::uint64_t>(outcome_.plans));
      outcome_.plans += space_.num_members(group);
    }
    if (outcome_.plans == 0) {
      explain_empty_space(space_.base(), options_.constraints);
    }
  }

  // Plans that are likely to fit, spread over the groups, so that there is an answer early: of each
  // the thriftiest and a fast one. The branch and bound passes over them later.
  void find_incumbent() {
    const std::size_t stride = std::max<std::size_t>(1, groups_.size() / kSeedGroups);
    std::vector<Node> seeds;
    for (std::size_t index = 0; index < groups_.size(); index += stride) {
      if (space_.num_members(groups_[index]) > 0) {
        add_seeds(static_cast<std::uint32_t>(index), seeds);
      }
    }
    std::vector<Outcomes> found(seeds.size());
    const auto group_of = [&](std::size_t index) { return seeds[index].group; };
    spread(seeds.size(), group_of,
           [&](Worker& worker, std::size_t index) { found[index] = worker.try_out(seeds[index]); });
    seeding_ = true;
    for (std::size_t index = 0; index < seeds.size(); ++index) {
      take(seeds[index], found[index]);
    }
    seeding_ = false;
  }

  void add_seeds(std::uint32_t index, std::vector<Node>& seeds) {
    const Group& group = groups_[index];
    const std::vector<Member> layouts = space_.layouts(group);
    const std::vector<int> zeros = space_.zero_stages(group);
    const std::vector<Family>& families = space_.families(group);
    const auto most = [&](auto key) {
      std::size_t best = 0;
      for (std::size_t i = 1; i < layouts.size(); ++i) {
        best = key(layouts[best]) < key(layouts[i]) ? i : best;
      }
      return best;
    };
    const std::size_t thrifty = most([](const Member& member) {
      return std::tuple(member.recompute, member.sequence_parallel);
    });
    const std::size_t fast = most([](const Member& member) {
      return std::tuple(member.recompute == plan::Recompute::None, member.sequence_parallel);
    });
    const auto add = [&](std::size_t layout, std::size_t family, std::size_t zero) {
      Node node;
      node.group = index;
      node.layout = static_cast<std::uint16_t>(layout);
      node.family = static_cast<std::uint16_t>(family);
      node.level = Level::Plan;
      node.zeros = static_cast<std::uint8_t>(1U << zero);
      node.order = first_order_[index] +
                   (static_cast<std::uint64_t>(families[family].first) * layouts.size() +
                    layout * families[family].schedules.size()) *
                       zeros.size();
      if (seeded_.insert(node.order + zero).second) {
        seeds.push_back(node);
      }
    };
    const auto sharded =
        static_cast<std::size_t>(std::find(zeros.begin(), zeros.end(), 1) - zeros.begin());
    add(thrifty, 0, zeros.size() - 1);
    add(fast, families.size() - 1, sharded < zeros.size() ? sharded : 0);
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
    const auto group_of = [](std::size_t index) { return index; };
    spread(groups_.size(), group_of, [&](Worker& worker, std::size_t index) {
      open[index].group = static_cast<std::uint32_t>(index);
      open[index].bound = least;
      if (!interrupted() && !out_of_time()) {
        open[index].bound = worker.bound(groups_[index]);
      }
    });
    for (const OpenGroup& group : open) {
      pending_.push(group);
    }
  }

  Seconds best_time() const {
    return ranked_.empty() ? Seconds(std::numeric_limits<double>::infinity())
                           : ranked_.front().time;
  }
  Seconds cutoff() const { return best_time() * (1.0 - options_.gap_fraction); }
  Known known() const { return {cutoff(), !ranked_.empty(), closest_}; }

  Seconds next_bound() const {
    Seconds bound(std::numeric_limits<double>::infinity());
    if (!pending_.empty()) {
      bound = pending_.top().bound;
    }
    return nodes_.empty() ? bound : std::min(bound, nodes_.top().bound);
  }
  bool has_work() const { return next_bound() < cutoff(); }
  bool next_is_group() const {
    return !pending_.empty() && (nodes_.empty() || pending_.top().bound <= nodes_.top().bound);
  }
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

  void open_groups() {
    std::vector<OpenGroup> batch;
    while (!pending_.empty() && batch.size() < kGroupsAtOnce && pending_.top().bound < cutoff()) {
      batch.push_back(pending_.top());
      pending_.pop();
    }
    std::vector<Outcomes> opened(batch.size());
    const Known now = known();
    const auto group_of = [&](std::size_t index) { return batch[index].group; };
    spread(batch.size(), group_of, [&](Worker& worker, std::size_t index) {
      opened[index] = worker.open(batch[index].group, now);
    });
    for (const Outcomes& outcomes : opened) {
      take({}, outcomes);
    }
  }

  std::vector<Node> next_nodes() {
    std::vector<Node> batch;
    const Seconds until =
        pending_.empty() ? Seconds(std::numeric_limits<double>::infinity()) : pending_.top().bound;
    while (!nodes_.empty() && batch.size() < kNodesAtOnce && nodes_.top().bound < cutoff() &&
           nodes_.top().bound <= until) {
      batch.push_back(nodes_.top());
      nodes_.pop();
    }
    return batch;
  }

  void visit(const std::vector<Node>& batch) {
    std::vector<Outcomes> visited(batch.size());
    const Known now = known();
    const auto group_of = [&](std::size_t index) { return batch[index].group; };
    spread(batch.size(), group_of, [&](Worker& worker, std::size_t index) {
      const Node& node = batch[index];
      visited[index] = node.is_plan() ? worker.judge(node) : worker.expand(node, now);
    });
    for (std::size_t index = 0; index < batch.size(); ++index) {
      take(batch[index], visited[index]);
    }
  }

  void take(const Node& node, const Outcomes& outcomes) {
    for (const Node& child : outcomes.children) {
      if (!child.is_plan() || !seeded_.contains(order_of(child))) {
        nodes_.push(child);
      }
    }
    for (const Outcomes::Run& run : outcomes.misfits) {
      outcome_.infeasible += static_cast<std::int64_t>(run.count) - num_counted(run);
    }
    if (outcomes.overflow.is_closer_than(closest_)) {
      closest_ = outcomes.overflow;
    }
    if (outcomes.time) {
      ++outcome_.simulated;
      rank({node, *outcomes.time});
    }
  }

  // Seeds of a run of misfits; they were counted when they were tried.
  std::int64_t num_counted(const Outcomes::Run& run) const {
    if (seeding_) {
      return 0;
    }
    std::int64_t counted = 0;
    const std::uint64_t end = run.first + (run.count - 1) * run.step + 1;
    for (auto seed = seeded_.lower_bound(run.first); seed != seeded_.end() && *seed < end; ++seed) {
      counted += (*seed - run.first) % run.step == 0 ? 1 : 0;
    }
    return counted;
  }

  void rank(const Ranked& found) {
    const auto better = [this](const Ranked& a, const Ranked& b) {
      return a.time != b.time ? a.time < b.time : order_of(a.node) < order_of(b.node);
    };
    ranked_.insert(std::upper_bound(ranked_.begin(), ranked_.end(), found, better), found);
    const std::size_t keep = static_cast<std::size_t>(std::max(0, options_.top)) + 1;
    if (ranked_.size() > keep) {
      ranked_.pop_back();
    }
  }

  Found found_of(const Ranked& ranked) {
    Worker& worker = *workers_.front();
    Found found{worker.configure(ranked.node), {}};
    found.simulation = worker.simulator().run(
        found.plan, {.record_spans = false, .interval_draws = plan::kIntervalDraws});
    return found;
  }

  // Plans whose bounds leave it open whether they win.
  std::int64_t num_unexplored() {
    std::int64_t plans = 0;
    while (!pending_.empty() && pending_.top().bound < cutoff()) {
      const std::uint32_t group = pending_.top().group;
      plans += unseeded(first_order_[group],
                        static_cast<std::uint64_t>(space_.num_members(groups_[group])));
      pending_.pop();
    }
    while (!nodes_.empty() && nodes_.top().bound < cutoff()) {
      plans += unseeded_below(nodes_.top());
      nodes_.pop();
    }
    return plans;
  }

  // Plans of a node that were not tried first.
  std::int64_t unseeded_below(const Node& node) const {
    const Group& group = groups_[node.group];
    const std::uint64_t zeros = space_.zero_stages(group).size();
    const std::uint64_t schedules =
        node.level >= Level::Schedule ? 1 : space_.families(group)[node.family].schedules.size();
    std::int64_t plans = 0;
    for (std::uint64_t schedule = 0; schedule < schedules; ++schedule) {
      for (std::uint64_t zero = 0; zero < zeros; ++zero) {
        const bool open = node.level == Level::Family || (node.zeros >> zero & 1U) != 0;
        plans += open && !seeded_.contains(node.order + schedule * zeros + zero) ? 1 : 0;
      }
    }
    return plans;
  }

  std::int64_t unseeded(std::uint64_t first, std::uint64_t count) const {
    const auto seeds =
        std::distance(seeded_.lower_bound(first), seeded_.lower_bound(first + count));
    return static_cast<std::int64_t>(count) - seeds;
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
    outcome_.closest_overflow = closest_.text;
    outcome_.unexplored = num_unexplored();
    outcome_.pruned = outcome_.plans - outcome_.simulated - outcome_.unexplored;
    outcome_.search_time =
        Seconds(std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count());
    return std::move(outcome_);
  }

  std::uint64_t order_of(const Node& plan) const { return workers_.front()->order_of(plan); }

  const Options& options_;
  Space space_;
  std::vector<Group> groups_;
  std::vector<std::uint64_t> first_order_;  // of each group's members
  std::set<std::uint64_t> seeded_;          // evaluated before the search proper
  bool seeding_ = false;
  std::vector<std::unique_ptr<Worker>> workers_;
  MinHeap<OpenGroup> pending_;
  MinHeap<Node> nodes_;
  std::vector<Ranked> ranked_;  // best first
  Overflow closest_;
  Outcome outcome_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace

Outcome search(const plan::Plan& base, const Options& options,
               const std::function<void(const ProgressReport&)>& progress) {
  return BestFirst(base, options).run(progress);
}

}  // namespace orrery::search
