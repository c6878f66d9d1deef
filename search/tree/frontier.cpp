// SPDX-License-Identifier: Apache-2.0
#include "search/tree/frontier.hpp"

#include <iterator>
#include <limits>

namespace orrery::search {

namespace {

// Work of a batch, in units: a share of all before it, so that little is looked at too early, and
// few batches have an end that somebody waits for.
constexpr std::uint64_t kLeastWork = 4096;
constexpr std::uint64_t kMostWork = 131'072;
constexpr std::uint64_t kShareOfWork = 8;
// Plans that are simulated before all with smaller bounds are ruled out, in each batch: what they
// take rules out others. Those not far below the best one are not worth the replays of memory.
constexpr std::size_t kEarlyPlans = 4;
constexpr double kMuchFaster = 0.95;
constexpr std::size_t kSeedGroups = 64;  // tried first, for an early answer
constexpr std::size_t kSpare = 4;  // kept for each that is listed: some fail the replay of memory

constexpr Seconds kNever(std::numeric_limits<double>::infinity());

}  // namespace

Frontier::Frontier(const Tree& tree, double gap_fraction, int top, std::size_t wanted)
    : tree_(tree),
      space_(tree.space),
      groups_(tree.groups),
      first_order_(tree.first_order),
      gap_fraction_(gap_fraction),
      keep_(kSpare * static_cast<std::size_t>(std::max(0, top)) + 1),
      wanted_(wanted) {}

Batch Frontier::seeds() {
  const std::size_t stride = std::max<std::size_t>(1, groups_.size() / kSeedGroups);
  Batch batch;
  batch.task = Task::TryOut;
  for (std::size_t index = 0; index < groups_.size(); index += stride) {
    if (space_.num_members(groups_[index]) > 0) {
      add_seeds(static_cast<std::uint32_t>(index), batch.nodes);
    }
  }
  return batch;
}

void Frontier::add_seeds(std::uint32_t index, std::vector<Node>& seeds) {
  const Group& group = groups_[index];
  const std::vector<Member>& layouts = space_.layouts(group);
  const std::vector<int> zeros = space_.zero_stages(group);
  const std::vector<Family>& families = space_.families(group);
  const auto most = [&](auto key) {
    std::size_t best = 0;
    for (std::size_t i = 1; i < layouts.size(); ++i) {
      best = key(layouts[best]) < key(layouts[i]) ? i : best;
    }
    return best;
  };
  const std::size_t thrifty = most(
      [](const Member& member) { return std::tuple(member.recompute, member.sequence_parallel); });
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
    node.order =
        first_order_[index] + (static_cast<std::uint64_t>(families[family].first) * layouts.size() +
                               layout * families[family].schedules.size()) *
                                  zeros.size();
    if (seeded_.insert(node.position()).second) {
      seeds.push_back(node);
    }
  };
  const auto sharded =
      static_cast<std::size_t>(std::find(zeros.begin(), zeros.end(), 1) - zeros.begin());
  add(thrifty, 0, zeros.size() - 1);
  std::size_t last = families.size() - 1;  // of those without slices, where there are some
  while (last > 0 && families[last].slices > 1) {
    --last;
  }
  add(fast, last, sharded < zeros.size() ? sharded : 0);
}

Batch Frontier::groups() const {
  Batch batch;
  batch.task = Task::Bound;
  for (std::size_t index = 0; index < groups_.size(); ++index) {
    Node node;
    node.group = static_cast<std::uint32_t>(index);
    node.level = Level::Group;
    node.order = first_order_[index];
    batch.nodes.push_back(node);
  }
  return batch;
}

Seconds Frontier::best_time() const { return ranked_.empty() ? kNever : ranked_.front().time; }

Seconds Frontier::last_wanted() const {
  return ranked_.size() < wanted_ ? kNever : ranked_[wanted_ - 1].time;
}

// Until a plan is known any bound is of interest, also to a gap of 1.
Seconds Frontier::cutoff() const {
  const Seconds last = last_wanted();
  return last == kNever ? last : last * (1.0 - gap_fraction_);
}

Seconds Frontier::next_bound() const {
  if (!bounded_) {
    return space_.roofline();
  }
  const Seconds plan = plans_.empty() ? kNever : plans_.top().bound;
  return nodes_.empty() ? plan : std::min(plan, nodes_.top().bound);
}

double Frontier::gap() const {
  return ranked_.empty() ? 1.0 : std::max(0.0, 1.0 - lower_bound() / best_time());
}

Frontier::MinHeap<Node>& Frontier::least() {
  const bool plan = nodes_.empty() || (!plans_.empty() && nodes_.top() > plans_.top());
  return plan ? plans_ : nodes_;
}

Batch Frontier::next() {
  Batch batch;
  const bool replayed = closest_replayed_.is_closer_than(closest_);
  batch.known = {cutoff(), !ranked_.empty(), replayed ? closest_replayed_ : closest_};
  const std::uint64_t most = std::clamp(work_ / kShareOfWork, kLeastWork, kMostWork);
  for (std::uint64_t work = 0; has_work() && work < most;) {
    MinHeap<Node>& from = least();
    batch.nodes.push_back(from.top());
    work += tree_.work_of(Task::Visit, from.top());
    from.pop();
  }
  // Plans before their turn, where they may be much faster than the best one.
  for (std::size_t early = 0;
       early < kEarlyPlans && !plans_.empty() && plans_.top().bound < best_time() * kMuchFaster;
       ++early) {
    batch.nodes.push_back(plans_.top());
    plans_.pop();
  }
  return batch;
}

void Frontier::take(const Batch& batch, const std::vector<Done>& done) {
  bounded_ = bounded_ || batch.task == Task::Bound;
  for (std::size_t index = 0; index < batch.nodes.size(); ++index) {
    if (done[index].outcomes) {
      take(batch.task, batch.nodes[index], *done[index].outcomes);
      work_ += batch.task == Task::Visit ? tree_.work_of(Task::Visit, batch.nodes[index]) : 0;
    } else {
      take_back(batch.task, batch.nodes[index]);
    }
  }
}

void Frontier::put_back(const Batch& batch) {
  for (const Node& node : batch.nodes) {
    take_back(batch.task, node);
  }
}

void Frontier::take_back(Task task, const Node& node) {
  if (task == Task::TryOut) {
    seeded_.erase(node.position());
  } else if (task == Task::Bound) {
    Node open = node;
    open.bound = space_.roofline();
    push(open);
  } else {
    push(node);
  }
}

void Frontier::take(Task task, const Node& node, const Outcomes& outcomes) {
  if (task == Task::Bound) {
    Node open = node;
    open.bound = *outcomes.time;
    push(open);
    return;
  }
  for (const Node& child : outcomes.children) {
    if (!child.is_plan() || !seeded_.contains(child.position())) {
      push(child);
    }
  }
  for (const Outcomes::Run& run : outcomes.misfits) {
    const std::int64_t counted = task == Task::TryOut ? 0 : num_counted(run);
    infeasible_ += static_cast<std::int64_t>(run.count) - counted;
  }
  Overflow& closest = outcomes.overflow.replayed ? closest_replayed_ : closest_;
  if (outcomes.overflow.is_closer_than(closest)) {
    closest = outcomes.overflow;
  }
  if (outcomes.time) {
    ++simulated_;
    rank({node, *outcomes.time});
  }
}

// Seeds of a run of misfits; they were counted when they were tried.
std::int64_t Frontier::num_counted(const Outcomes::Run& run) const {
  std::int64_t counted = 0;
  const std::uint64_t end = run.first + (run.count - 1) * run.step + 1;
  for (auto seed = seeded_.lower_bound(run.first); seed != seeded_.end() && *seed < end; ++seed) {
    counted += (*seed - run.first) % run.step == 0 ? 1 : 0;
  }
  return counted;
}

void Frontier::rank(const Ranked& found) {
  const auto better = [](const Ranked& a, const Ranked& b) {
    return a.time != b.time ? a.time < b.time : a.node.position() < b.node.position();
  };
  ranked_.insert(std::upper_bound(ranked_.begin(), ranked_.end(), found, better), found);
  if (ranked_.size() > keep_) {
    ranked_.pop_back();
  }
}

std::int64_t Frontier::num_unexplored() const {
  std::int64_t plans = 0;
  std::vector<std::uint64_t> zeros(groups_.size());  // ZeRO stages of the groups that are open
  for (const MinHeap<Node>* nodes : {&nodes_, &plans_}) {
    for (const Node& node : nodes->all()) {
      if (node.bound < cutoff()) {
        std::uint64_t& stages = zeros[node.group];
        stages = stages == 0 ? space_.zero_stages(groups_[node.group]).size() : stages;
        plans += unseeded_below(node, stages);
      }
    }
  }
  return plans;
}

// Plans of a node that were not tried first.
std::int64_t Frontier::unseeded_below(const Node& node, std::uint64_t zeros) const {
  const Group& group = groups_[node.group];
  if (node.level == Level::Group) {
    return unseeded(node.order, static_cast<std::uint64_t>(space_.num_members(group)));
  }
  const std::uint64_t schedules =
      node.level >= Level::Schedule ? 1 : space_.families(group)[node.family].schedules.size();
  if (node.level == Level::Family) {
    return unseeded(node.order, schedules * zeros);
  }
  std::int64_t plans = 0;
  for (std::uint64_t schedule = 0; schedule < schedules; ++schedule) {
    for (std::uint64_t zero = 0; zero < zeros; ++zero) {
      const bool open = (node.zeros >> zero & 1U) != 0;
      plans += open && !seeded_.contains(node.order + schedule * zeros + zero) ? 1 : 0;
    }
  }
  return plans;
}

std::int64_t Frontier::unseeded(std::uint64_t first, std::uint64_t count) const {
  const auto seeds = std::distance(seeded_.lower_bound(first), seeded_.lower_bound(first + count));
  return static_cast<std::int64_t>(count) - seeds;
}

}  // namespace orrery::search
