// SPDX-License-Identifier: Apache-2.0
// The arrangements of a mixed space: which replicas and stages stand on which pools.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/error.hpp"
#include "base/math.hpp"
#include "plan/block_rules.hpp"
#include "plan/heads.hpp"
#include "search/mixed/cuts.hpp"
#include "search/mixed/space.hpp"
#include "search/space/expert_degrees.hpp"
#include "search/space/layout_fields.hpp"

namespace orrery::search {

namespace {

using plan::ReplicaGroup;

// Micro-batches to each side of a group's proportional share that are tried; fewer where whole and
// divided replicas stand side by side.
constexpr std::int64_t kShareWindow = 8;
constexpr std::int64_t kBesideWindow = 3;

constexpr std::uint64_t kLookEvery = 64;

}  // namespace

// Thrown by look(): thousands of arrangements may come from one loop of eight.
struct MixedSpace::Stopped {};
// By add(), where they are counted.
struct MixedSpace::TooMany {};

MixedSpace::MixedSpace(const plan::MixedPlan& base, const Constraints& constraints,
                       plan::MixedSimulator& simulator, const std::function<bool()>& stop,
                       std::size_t most)
    : base_(base),
      constraints_(constraints),
      simulator_(simulator),
      arrangements_(std::make_shared<std::vector<Arrangement>>()) {
  constraints.apply(layout_);
  lists_beside_ = can_list(most);
  if (!lists_beside_ && !can_list(most)) {
    bad_input("mixed cluster",
              fmt::format("there are more than {} ways to place replicas and stages on it", most),
              "choose some: --fix tp=8,pp=16, or --fix micro_batch=1");
  }
  stop_ = &stop;
  try {
    add_all();
  } catch (const Stopped&) {
    is_whole_ = false;
  }
  stop_ = nullptr;
}

// Counted before any is made: a list that is too long takes gigabytes before that is known.
bool MixedSpace::can_list(std::size_t most) {
  left_ = most;
  bool few = true;
  try {
    add_all();
  } catch (const TooMany&) {
    few = false;
  }
  left_.reset();
  return few;
}

void MixedSpace::look() {
  if (left_) {
    return;
  }
  if (++looks_ % kLookEvery == 0 && *stop_ && (*stop_)()) {
    throw Stopped();
  }
}

void MixedSpace::add(const Arrangement& one) {
  if (left_) {
    if ((*left_)-- == 0) {
      throw TooMany();
    }
    return;
  }
  arrangements_->push_back(one);
  look();
}

void MixedSpace::add_all() {
  const auto num_pools = static_cast<unsigned>(base_.num_pools());
  for (unsigned chosen = 1; chosen < 1U << num_pools; ++chosen) {
    std::vector<int> pools;
    for (unsigned pool = 0; pool < num_pools; ++pool) {
      if ((chosen >> pool & 1U) != 0) {
        pools.push_back(static_cast<int>(pool));
      }
    }
    const std::int64_t widest = gpus_of_every_node(base_, pools);
    if (pools.size() > 1 && base_.machine->cluster.in_same_nodes(pools)) {
      add_teams(pools);
    }
    if (!constraints_.admits("tensor_shares", "equal")) {
      continue;  // GPUs of one kind have no others
    }
    for (const std::int64_t tp : divisors(widest)) {
      if (constraints_.admits("tp", tp)) {
        add_ranks(pools, tp, widest);
      }
    }
  }
}

// Every way to lay experts on the tensor-parallel ranks, and every number of context ranks.
void MixedSpace::add_ranks(const std::vector<int>& pools, std::int64_t tp, std::int64_t widest) {
  const models::NetworkSpec& spec = base_.shape.network.spec;
  Arrangement ranks;
  ranks.tp = static_cast<int>(tp);
  for (const int expert_tp : expert_tensor_degrees(ranks.tp, spec, constraints_)) {
    if (plan::cuts_evenly(spec, tp, expert_tp > 0 && expert_tp < tp)) {
      ranks.expert_tp = expert_tp;
      for (const int cp : context_degrees(pools, tp, widest)) {
        ranks.cp = cp;
        add_shapes(pools, ranks);
      }
    }
  }
}

MixedSpace::MixedSpace(const MixedSpace& other, plan::MixedSimulator& simulator)
    : base_(other.base_),
      constraints_(other.constraints_),
      simulator_(simulator),
      layout_(other.layout_),
      arrangements_(other.arrangements_),
      is_whole_(other.is_whole_),
      lists_beside_(other.lists_beside_),
      left_out_(other.left_out_) {}

std::int64_t MixedSpace::gpus_of(int pool) const {
  return base_.machine->cluster.pools[static_cast<std::size_t>(pool)].cluster.num_gpus();
}

std::int64_t MixedSpace::gpus_of_node(int pool) const {
  return base_.machine->cluster.pools[static_cast<std::size_t>(pool)].cluster.node.gpus;
}

std::int64_t MixedSpace::num_layers() const {
  const models::NetworkSpec& spec = base_.shape.network.spec;
  return spec.layers + spec.encoder_layers;
}

// Inside the nodes; over whole nodes where one such number is fixed. Causal rings balance with two
// of 2 cp chunks for every rank.
std::vector<int> MixedSpace::context_degrees(const std::vector<int>& pools, std::int64_t tp,
                                             std::int64_t widest) const {
  std::vector<std::int64_t> degrees = divisors(widest / tp);
  const std::int64_t fixed = constraints_.fixed_number("cp").value_or(1);
  const bool fills_nodes = std::all_of(pools.begin(), pools.end(), [&](int pool) {
    return fixed * tp % gpus_of_node(pool) == 0 && fixed * tp > gpus_of_node(pool);
  });
  if (fills_nodes) {
    degrees.push_back(fixed);
  }
  std::vector<int> splits;
  for (const std::int64_t degree : degrees) {
    if ((degree == 1 || base_.shape.sequence % (2 * degree) == 0) &&
        constraints_.admits("cp", degree)) {
      splits.push_back(static_cast<int>(degree));
    }
  }
  return splits;
}

plan::BlockPlan MixedSpace::layout_of(const Arrangement& one) const {
  plan::BlockPlan layout = layout_;
  layout.expert_tp = one.expert_tp;
  return with_degrees(layout, one.tp, one.cp, one.ep);
}

bool MixedSpace::admits(const Arrangement& arrangement) const {
  return constraints_.admits("pp", arrangement.pp) && constraints_.admits("dp", arrangement.dp) &&
         constraints_.admits("micro_batch", arrangement.micro_batch);
}

void MixedSpace::add_shapes(const std::vector<int>& pools, const Arrangement& ranks) {
  const bool beside = pools.size() > 1;
  if (beside && !lists_beside_ && left_) {  // an early end cuts the list short, not the count
    left_out_.emplace_back(pools, ranks);
  }
  std::vector<int> order = pools;
  do {
    add_stages(order, ranks);
    if (beside && lists_beside_) {
      add_beside(order, ranks);
    }
  } while (std::next_permutation(order.begin(), order.end()));
  if (pools.size() > 1) {
    add_replicas(pools, ranks);
  }
}

void MixedSpace::add_stages(const std::vector<int>& order, Arrangement one) {
  std::int64_t fewest = gpus_of(order.front());
  for (const int pool : order) {
    fewest = std::min(fewest, gpus_of(pool));
  }
  for (std::int64_t dp = 1; dp * one.ranks() <= fewest; ++dp) {
    if (base_.shape.batch % dp != 0) {
      continue;
    }
    one.pp = 0;
    one.dp = static_cast<int>(dp);
    one.runs.clear();
    ReplicaGroup group;
    group.replicas = one.dp;
    for (const int pool : order) {
      one.runs.push_back(static_cast<int>(gpus_of(pool) / (dp * one.ranks())));
      one.pp += one.runs.back();
      group.pools.insert(group.pools.end(), static_cast<std::size_t>(one.runs.back()), pool);
    }
    if (one.pp > num_layers()) {
      continue;
    }
    for (const int ep :
         expert_degrees(layout_of(one), dp, base_.shape.network.spec, constraints_)) {
      one.ep = ep;
      for (const std::int64_t micro_batch : divisors(base_.shape.batch / dp)) {
        one.micro_batch = micro_batch;
        group.micro_batches = base_.shape.batch / (dp * micro_batch);
        one.groups = {group};
        if (admits(one)) {
          add(one);
        }
      }
    }
  }
}

// Experts within the ranks of a replica at most: replicas on unlike GPUs do not share them.
bool MixedSpace::sets_experts(Arrangement& one) const {
  one.ep = base_.shape.network.spec.moe.experts > 0 ? plan::expert_ranks_inside(layout_of(one)) : 1;
  return std::max<std::int64_t>(1, base_.shape.network.spec.moe.experts) % one.ep == 0 &&
         constraints_.admits("ep", one.ep);
}

void MixedSpace::add_replicas(const std::vector<int>& pools, Arrangement one) {
  std::int64_t fewest = gpus_of(pools.front());
  for (const int pool : pools) {
    fewest = std::min(fewest, gpus_of(pool));
  }
  if (!sets_experts(one)) {
    return;
  }
  for (std::int64_t pp = 1; pp * one.ranks() <= fewest && pp <= num_layers(); ++pp) {
    one.pp = static_cast<int>(pp);
    one.groups.clear();
    for (const int pool : pools) {
      add_group(static_cast<int>(gpus_of(pool) / (pp * one.ranks())),
                std::vector<int>(static_cast<std::size_t>(pp), pool), one);
    }
    add_micro_batches(one, kShareWindow);
  }
}

// As many whole replicas on every pool as fit, and divided ones on what they leave of several: so
// many stages on each pool in turn. At least one of either.
void MixedSpace::add_beside(const std::vector<int>& order, Arrangement one) {
  std::int64_t slots = 0;  // for one stage of a replica
  for (const int pool : order) {
    slots += gpus_of(pool) / one.ranks();
  }
  if (!sets_experts(one)) {
    return;
  }
  const auto parts = static_cast<std::int64_t>(order.size());
  for (std::int64_t pp = parts; pp <= std::min(slots, num_layers()); ++pp) {
    std::vector<std::int64_t> left;
    for (const int pool : order) {
      left.push_back(gpus_of(pool) / one.ranks() % pp);
    }
    if (std::accumulate(left.begin(), left.end(), std::int64_t{0}) < pp) {
      continue;
    }
    one.pp = static_cast<int>(pp);
    for (const std::vector<int>& runs : compositions(one.pp, std::vector<int>(order.size(), 1))) {
      one.groups.clear();
      std::vector<int> pools;
      std::int64_t divided = slots;
      for (std::size_t index = 0; index < order.size(); ++index) {
        const int whole = static_cast<int>(gpus_of(order[index]) / one.ranks() / pp);
        if (whole > 0) {
          add_group(whole, std::vector<int>(static_cast<std::size_t>(pp), order[index]), one);
        }
        divided = std::min(divided, left[index] / runs[index]);
        pools.insert(pools.end(), static_cast<std::size_t>(runs[index]), order[index]);
      }
      if (divided > 0 && !one.groups.empty()) {
        add_group(static_cast<int>(divided), std::move(pools), one);
        add_micro_batches(one, kBesideWindow);
      }
    }
  }
}

void MixedSpace::add_group(int replicas, std::vector<int> pools, Arrangement& one) {
  ReplicaGroup group;
  group.replicas = replicas;
  group.pools = std::move(pools);
  one.dp = one.groups.empty() ? replicas : one.dp + replicas;
  one.groups.push_back(std::move(group));
}

void MixedSpace::add_micro_batches(Arrangement one, std::int64_t window) {
  for (const std::int64_t micro_batch : divisors(base_.shape.batch)) {
    one.micro_batch = micro_batch;
    if (base_.shape.batch / micro_batch >= one.dp && admits(one)) {
      add_shares(one, base_.shape.batch / micro_batch, window);
    }
  }
}

// Every group but the last takes what is near its share by the speed of its slowest pool, the last
// one what is left.
void MixedSpace::add_shares(Arrangement arrangement, std::int64_t micro_batches,
                            std::int64_t window) {
  look();
  std::vector<ReplicaGroup>& groups = arrangement.groups;
  std::vector<double> speed;
  double all = 0;
  for (const ReplicaGroup& group : groups) {
    double slowest = 0;
    for (std::size_t device = 0; device < group.pools.size(); ++device) {
      if (device == 0 || group.pools[device] != group.pools[device - 1]) {
        const ChainTimes& chain = times(group.pools[device], arrangement, MixedLayout());
        slowest = std::max(slowest, to_seconds(chain.of(0, chain.forward.size() - 1)).value());
      }
    }
    speed.push_back(1.0 / slowest);
    all += speed.back() * group.replicas;
  }
  const auto place = [&](auto&& self, std::size_t index, std::int64_t left) -> void {
    ReplicaGroup& group = groups[index];
    if (index + 1 == groups.size()) {
      if (left >= group.replicas && left % group.replicas == 0) {
        group.micro_batches = left / group.replicas;
        add(arrangement);
      }
      return;
    }
    const auto share =
        static_cast<std::int64_t>(static_cast<double>(micro_batches) * (speed[index] / all));
    const std::int64_t first = std::max<std::int64_t>(1, share - window);
    for (std::int64_t count = first; count <= share + window + 1; ++count) {
      group.micro_batches = count;
      if (count * group.replicas < left) {
        self(self, index + 1, left - count * group.replicas);
      }
    }
  };
  place(place, 0, micro_batches);
}

}  // namespace orrery::search
