// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/tiers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>

#include "base/error.hpp"
#include "sim/engine/engine.hpp"

namespace orrery::sim {

namespace {

// What happens before a step: objects that are dropped or stored, then objects that are loaded.
struct Transfer {
  std::vector<int> out;
  std::vector<int> in;
};

// The window of every step, and the transfers between them.
class Script {
 public:
  Script(const std::vector<TierStep>& steps, std::size_t num_objects, const TierPolicy& policy)
      : steps_(steps), policy_(policy), state_(num_objects, State::Away), seen_(num_objects, 0) {}

  // Transfers to be made before each step; those before step 0 are single objects.
  std::vector<std::vector<Transfer>> transfers() {
    std::vector<std::vector<Transfer>> before(steps_.size());
    for (const int object : window(0)) {
      before[0].push_back({{}, {object}});
      state_[static_cast<std::size_t>(object)] = State::Here;
    }
    for (std::size_t step = 1; step < steps_.size(); ++step) {
      update(step);
      const int object = steps_[step].object;
      const bool needed = object != kNoObject && state_of(object) == State::Entering;
      const std::size_t moved = std::max(pending_.in.size(), pending_.out.size());
      if (moved >= static_cast<std::size_t>(policy_.batch) || needed) {
        flush(before[step]);
      }
    }
    return before;
  }

 private:
  enum class State { Away, Entering, Here, Leaving };

  State& state_of(int object) { return state_[static_cast<std::size_t>(object)]; }

  // The next distinct objects from `step` on, in order.
  std::vector<int> window(std::size_t step) {
    std::vector<int> objects;
    const auto limit = static_cast<std::size_t>(policy_.resident);
    ++windows_;
    for (; step < steps_.size() && objects.size() < limit; ++step) {
      if (steps_[step].object == kNoObject) {
        continue;
      }
      std::uint64_t& seen = seen_[static_cast<std::size_t>(steps_[step].object)];
      if (seen != windows_) {
        seen = windows_;
        objects.push_back(steps_[step].object);
      }
    }
    return objects;
  }

  // The object of the step before may leave; what comes next enters.
  void update(std::size_t step) {
    const std::vector<int> wanted = window(step);
    const int last = steps_[step - 1].object;
    const bool leaves = last != kNoObject && seen_[static_cast<std::size_t>(last)] != windows_;
    if (leaves && state_of(last) == State::Here) {
      state_of(last) = State::Leaving;
      pending_.out.push_back(last);
    }
    for (const int object : wanted) {
      if (state_of(object) == State::Away) {
        state_of(object) = State::Entering;
        pending_.in.push_back(object);
      } else if (state_of(object) == State::Leaving) {  // needed again before it was dropped
        state_of(object) = State::Here;
        std::erase(pending_.out, object);
      }
    }
  }

  void flush(std::vector<Transfer>& transfers) {
    for (const int object : pending_.out) {
      state_of(object) = State::Away;
    }
    for (const int object : pending_.in) {
      state_of(object) = State::Here;
    }
    transfers.push_back(std::move(pending_));
    pending_ = {};
  }

  const std::vector<TierStep>& steps_;
  const TierPolicy& policy_;
  std::vector<State> state_;
  std::uint64_t windows_ = 0;        // taken so far
  std::vector<std::uint64_t> seen_;  // of every object: the last window that held it
  Transfer pending_;
};

class TierProgram {
 public:
  TierProgram(const TierGraph& graph, int at, const std::vector<TierObject>& objects,
              const std::vector<TierStep>& steps, const TierPolicy& policy)
      : graph_(graph),
        at_(at),
        objects_(objects),
        steps_(steps),
        policy_(policy),
        processor_(program_.add_stream(0, StreamKind::Compute, "steps")),
        issue_(program_.add_stream(0, StreamKind::Host, "issue")),
        brought_(objects.size()),
        dirty_(objects.size()),
        buffers_(objects.size(), kNone) {
    const MemoryTier& tier = graph.tiers[static_cast<std::size_t>(at)];
    pool_ = program_.add_pool(0, ByteCount(std::numeric_limits<std::int64_t>::max()), tier.name);
    result_.moved.resize(graph.channels.size());
    add_resources();
  }

  TierRun run() {
    const auto before = Script(steps_, objects_.size(), policy_).transfers();
    NodeId last = kNone;
    std::vector<NodeId> nodes;
    for (std::size_t index = 0; index < steps_.size(); ++index) {
      for (const Transfer& transfer : before[index]) {
        add_transfer(transfer, last);
      }
      last = add_step(steps_[index]);
      nodes.push_back(last);
      result_.busy += steps_[index].time;
    }
    store_rest(last);
    program_.finalize();
    const Timeline timeline = sim::run(program_);
    ORRERY_CHECK(!timeline.deadlock, "the steps of a tier program wait for each other");
    for (const NodeId node : nodes) {
      result_.ends.push_back(timeline.end[node]);
    }
    result_.makespan = result_.ends.empty() ? SimTime{} : result_.ends.back();
    result_.drained = timeline.makespan;
    result_.peak = timeline.peaks[pool_].bytes;
    const ByteCount capacity = graph_.tiers[static_cast<std::size_t>(at_)].capacity;
    result_.fits = capacity.value() == 0 || result_.peak <= capacity;
    return result_;
  }

 private:
  void add_resources() {
    std::map<int, ResourceId> groups;
    for (const TierChannel& channel : graph_.channels) {
      const auto known = groups.find(channel.duplex_group);
      if (channel.duplex_group >= 0 && known != groups.end()) {
        channel_resources_.push_back(known->second);
        continue;
      }
      channel_resources_.push_back(program_.add_resource(channel.bandwidth.value(), "channel"));
      if (channel.duplex_group >= 0) {
        groups.emplace(channel.duplex_group, channel_resources_.back());
      }
    }
    for (const MemoryTier& tier : graph_.tiers) {
      const double rate = tier.bandwidth.value();
      tier_resources_.push_back(rate > 0 ? program_.add_resource(rate, tier.name) : kNone);
    }
  }

  // A flow of `bytes` from one tier to another, in order with the others of its direction.
  NodeId add_move(int from, int to, ByteCount bytes) {
    std::vector<ResourceId> route;
    Seconds latency;
    const auto use = [&route](ResourceId resource) {
      if (resource != kNone && std::find(route.begin(), route.end(), resource) == route.end()) {
        route.push_back(resource);
      }
    };
    use(tier_resources_[static_cast<std::size_t>(from)]);
    for (const int index : graph_.path(from, to)) {
      const TierChannel& channel = graph_.channels[static_cast<std::size_t>(index)];
      use(channel_resources_[static_cast<std::size_t>(index)]);
      use(tier_resources_[static_cast<std::size_t>(channel.to)]);
      latency += channel.latency;
      result_.moved[static_cast<std::size_t>(index)] += bytes;
    }
    const auto [known, is_new] = engines_.try_emplace({from, to}, 0);
    if (is_new) {
      known->second =
          program_.add_stream(0, from == at_ ? StreamKind::CopyOut : StreamKind::CopyIn, "copies");
    }
    return program_.add_flow({&known->second, 1}, to_sim_time(latency), bytes.bytes(), route, {});
  }

  // Dirty objects go out after the step that triggered the transfer, new ones come in.
  void add_transfer(const Transfer& transfer, NodeId after) {
    const std::vector<NodeId> stores = store(transfer.out, after);
    std::map<int, ByteCount> loads;
    for (const int object : transfer.in) {
      for (const TierMove& move : objects_[static_cast<std::size_t>(object)].loads) {
        loads[move.tier] += move.bytes;
      }
    }
    std::vector<NodeId> moves;
    const NodeId issue = loads.empty() ? kNone : add_issue(after, stores);
    for (const auto& [tier, bytes] : loads) {
      moves.push_back(add_move(tier, at_, bytes));
      program_.depend(moves.back(), issue);
    }
    for (const int object : transfer.in) {
      const auto slot = static_cast<std::size_t>(object);
      brought_[slot] = moves;
      const bool waits = policy_.dirty == DirtySpace::OwnBuffer || moves.empty();
      if (waits) {
        brought_[slot].insert(brought_[slot].end(), stores.begin(), stores.end());
      }
      if (!moves.empty()) {
        buffers_[slot] =
            program_.add_buffer(pool_, objects_[slot].resident, MemoryCategory::Other, issue);
      } else {
        buffers_[slot] = kNone;
      }
    }
  }

  // The moment from which loads may run; their space is taken from then on.
  NodeId add_issue(NodeId after, const std::vector<NodeId>& stores) {
    const NodeId issue = program_.add_work(issue_, SimTime{}, {});
    if (after != kNone) {
      program_.depend(issue, after);
    }
    if (policy_.dirty == DirtySpace::OfObject) {
      depend_on_all(issue, stores);
    }
    return issue;
  }

  // Objects leave the window after `after`: what is dirty is stored, the space is then free.
  std::vector<NodeId> store(const std::vector<int>& objects, NodeId after) {
    std::map<int, ByteCount> bytes;
    for (const int object : objects) {
      for (const TierMove& move : dirty_[static_cast<std::size_t>(object)]) {
        bytes[move.tier] += move.bytes;
      }
      dirty_[static_cast<std::size_t>(object)].clear();
    }
    std::vector<NodeId> stores;
    for (const auto& [tier, sum] : bytes) {
      stores.push_back(add_move(at_, tier, sum));
      program_.depend(stores.back(), after);
      if (policy_.dirty == DirtySpace::OwnBuffer) {
        const BufferId staging =
            program_.add_buffer(pool_, sum, MemoryCategory::Communication, after);
        program_.consume(staging, stores.back());
      }
    }
    for (const int object : objects) {
      const auto slot = static_cast<std::size_t>(object);
      if (buffers_[slot] == kNone) {
        continue;
      }
      program_.consume(buffers_[slot], after);
      if (policy_.dirty == DirtySpace::OfObject) {
        for (const NodeId node : stores) {
          program_.consume(buffers_[slot], node);
        }
      }
      buffers_[slot] = kNone;
    }
    return stores;
  }

  NodeId add_step(const TierStep& step) {
    const NodeId node = program_.add_work(processor_, step.time, {});
    if (step.object == kNoObject) {
      return node;
    }
    const auto slot = static_cast<std::size_t>(step.object);
    depend_on_all(node, brought_[slot]);
    if (buffers_[slot] == kNone) {  // created in place
      buffers_[slot] =
          program_.add_buffer(pool_, objects_[slot].resident, MemoryCategory::Other, node);
    }
    dirty_[slot].insert(dirty_[slot].end(), step.stores.begin(), step.stores.end());
    return node;
  }

  void store_rest(NodeId last) {
    for (std::size_t slot = 0; slot < objects_.size(); ++slot) {
      if (!dirty_[slot].empty()) {
        store({static_cast<int>(slot)}, last);
      }
    }
  }

  void depend_on_all(NodeId node, const std::vector<NodeId>& producers) {
    for (const NodeId producer : producers) {
      program_.depend(node, producer);
    }
  }

  const TierGraph& graph_;
  int at_;
  const std::vector<TierObject>& objects_;
  const std::vector<TierStep>& steps_;
  const TierPolicy& policy_;
  Program program_;
  StreamId processor_;
  StreamId issue_;
  PoolId pool_ = 0;
  std::vector<ResourceId> channel_resources_;
  std::vector<ResourceId> tier_resources_;
  std::map<std::pair<int, int>, StreamId> engines_;
  std::vector<std::vector<NodeId>> brought_;  // what a step on the object waits for
  std::vector<std::vector<TierMove>> dirty_;
  std::vector<BufferId> buffers_;
  TierRun result_;
};

}  // namespace

std::vector<int> TierGraph::path(int from, int to) const {
  std::vector<int> by(tiers.size(), -1);  // channel that reaches a tier
  std::vector<int> queue = {from};
  for (std::size_t head = 0; head < queue.size(); ++head) {
    for (std::size_t index = 0; index < channels.size(); ++index) {
      const TierChannel& channel = channels[index];
      const auto reached = static_cast<std::size_t>(channel.to);
      if (channel.from == queue[head] && channel.to != from && by[reached] < 0) {
        by[reached] = static_cast<int>(index);
        queue.push_back(channel.to);
      }
    }
  }
  std::vector<int> path;
  for (int tier = to; tier != from; tier = channels[static_cast<std::size_t>(path.back())].from) {
    const int channel = by[static_cast<std::size_t>(tier)];
    if (channel < 0) {
      bad_input("memory tiers", fmt::format("no channel leads from {} to {}",
                                            tiers[static_cast<std::size_t>(from)].name,
                                            tiers[static_cast<std::size_t>(to)].name));
    }
    path.push_back(channel);
  }
  std::reverse(path.begin(), path.end());
  return path;
}

TierRun run_tiers(const TierGraph& graph, int at, const std::vector<TierObject>& objects,
                  const std::vector<TierStep>& steps, const TierPolicy& policy) {
  if (policy.resident < 1 || policy.batch < 1 || policy.batch > policy.resident) {
    bad_input("memory tiers",
              fmt::format("{} objects resident, {} moved at once: at least one is moved and no "
                          "more than are resident",
                          policy.resident, policy.batch));
  }
  if (steps.empty()) {
    return {};
  }
  return TierProgram(graph, at, objects, steps, policy).run();
}

Seconds steady_partition_time(Seconds compute, Seconds load, Seconds store, int resident, int batch,
                              bool half_duplex) {
  const Seconds in = half_duplex ? load + store : load;
  const Seconds out = half_duplex ? Seconds() : store;
  if (resident - batch >= batch) {
    return std::max({compute, in, out});
  }
  const Seconds stall = std::max(
      Seconds(), in * static_cast<double>(batch) - compute * static_cast<double>(resident - batch));
  return compute + stall / static_cast<double>(batch);
}

}  // namespace orrery::sim
