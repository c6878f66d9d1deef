// SPDX-License-Identifier: Apache-2.0
#include "sim/collective_program.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"

namespace orrery::sim {
namespace {

// Builds the nodes of one collective. `ready_` of a rank is the node after which it may begin its
// next step; `pending_` are the ends that this node of the step under construction waits for.
class Expansion {
 public:
  Expansion(Program& program, SimTime begin, const CollectiveCosts& costs,
            const CollectiveRoutes& routes, const Tag& tag, int ranks,
            std::span<const NodeId> after)
      : program_(program), costs_(costs), routes_(routes), tag_(tag) {
    ORRERY_CHECK(after.empty() || after.size() == static_cast<std::size_t>(ranks),
                 "one predecessor a rank");
    for (std::size_t rank = 0; rank < static_cast<std::size_t>(ranks); ++rank) {
      ready_.push_back(delay(begin));
      if (!after.empty() && after[rank] != kNone) {
        program.depend(ready_.back(), after[rank]);
      }
    }
    pending_.resize(ready_.size());
  }

  void add_step(std::span<const CollectiveMessage> messages) {
    for (const CollectiveMessage& message : messages) {
      add_message(message);
    }
    for (std::size_t rank = 0; rank < ready_.size(); ++rank) {
      if (!pending_[rank].empty()) {
        pending_[rank].push_back(ready_[rank]);
        ready_[rank] = delay(costs_.endpoint);
        for (const NodeId end : pending_[rank]) {
          program_.depend(ready_[rank], end);
        }
        pending_[rank].clear();
      }
    }
  }

  std::vector<NodeId> take_ready() { return std::move(ready_); }

 private:
  NodeId delay(SimTime time) { return program_.add_flow({}, time, Bytes(0.0), {}, tag_); }

  void add_message(const CollectiveMessage& message) {
    NodeId node = kNone;
    if (routes_) {
      const std::vector<ResourceId> route = routes_(message.from, message.to);
      node = program_.add_flow({}, costs_.latency, message.bytes.bytes(), route, tag_);
    } else {
      node = delay(costs_.message(message.bytes));
    }
    program_.depend(node, ready_[message.from]);
    pending_[message.from].push_back(node);
    if (message.reduces && costs_.reduce) {
      const NodeId sum = delay(costs_.reduce(message.bytes));
      program_.depend(sum, node);
      node = sum;
    }
    pending_[message.to].push_back(node);
  }

  Program& program_;
  const CollectiveCosts& costs_;
  const CollectiveRoutes& routes_;
  const Tag& tag_;
  std::vector<NodeId> ready_;
  std::vector<std::vector<NodeId>> pending_;
};

}  // namespace

std::vector<NodeId> expand_collective(Program& program, const CollectiveAlgorithm& algorithm,
                                      int ranks, ByteCount size, const CollectiveCosts& costs,
                                      const CollectiveRoutes& routes, const Tag& tag,
                                      std::span<const NodeId> after) {
  const std::uint32_t steps = algorithm.num_steps(ranks, size);
  Expansion expansion(program, steps > 0 ? costs.endpoint : SimTime{}, costs, routes, tag, ranks,
                      after);
  std::vector<CollectiveMessage> messages;
  for (std::uint32_t step = 0; step < steps; ++step) {
    messages.clear();
    algorithm.append_step(ranks, size, step, messages);
    expansion.add_step(messages);
  }
  return expansion.take_ready();
}

std::vector<Demand> collective_loads(const CollectiveAlgorithm& algorithm, int ranks,
                                     ByteCount size, const CollectiveRoutes& routes) {
  std::vector<double> load;
  std::vector<CollectiveMessage> messages;
  const std::uint32_t steps = algorithm.num_steps(ranks, size);
  for (std::uint32_t step = 0; step < steps; ++step) {
    messages.clear();
    algorithm.append_step(ranks, size, step, messages);
    for (const CollectiveMessage& message : messages) {
      for (const ResourceId resource : routes(message.from, message.to)) {
        if (load.size() <= resource) {
          load.resize(resource + 1, 0.0);
        }
        load[resource] += message.bytes.bytes().value();
      }
    }
  }
  std::vector<Demand> demands;
  for (std::size_t resource = 0; resource < load.size(); ++resource) {
    if (load[resource] > 0.0) {
      demands.push_back({static_cast<ResourceId>(resource), load[resource]});
    }
  }
  return demands;
}

// The work is 1 collective; its rate bound is one per time that the bytes take alone. What latency,
// end points and reductions add does not load the links.
NodeId add_collective_group(Program& program, std::span<const StreamId> streams,
                            const CollectiveAlgorithm& algorithm, int ranks, ByteCount size,
                            const CollectiveCosts& costs, const CollectiveRoutes& routes,
                            const Tag& tag) {
  const SimTime total = collective_time(algorithm, ranks, size, costs).time;
  const CollectiveCosts bytes_only{SimTime{}, costs.bandwidth, SimTime{}, {}};
  const SimTime transfer =
      std::min(total, collective_time(algorithm, ranks, size, bytes_only).time);
  if (!routes || transfer.ps == 0) {
    return program.add_group(streams, total, tag);
  }
  const std::vector<Demand> demands = collective_loads(algorithm, ranks, size, routes);
  return program.add_shared_group(streams, total - transfer, 1.0,
                                  1.0 / to_seconds(transfer).value(), demands, tag);
}

}  // namespace orrery::sim
