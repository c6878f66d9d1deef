// SPDX-License-Identifier: Apache-2.0
#include "search/tree/projection.hpp"

#include <algorithm>
#include <map>
#include <queue>
#include <set>
#include <utility>

#include "search/tree/rank_pool.hpp"
#include "search/tree/worker_pool.hpp"
#include "sim/engine/engine.hpp"

namespace orrery::search {

namespace {

// Builds the program batch by batch. Who gets which node follows from when ranks are free, which a
// list schedule estimates; the engine then gives the times.
class Replay {
 public:
  Replay(int ranks, const Network& network)
      : network_(network), known_(static_cast<std::size_t>(ranks)) {
    messages_ = program_.add_resource(1, "messages");
    coordinator_ = program_.add_stream(0, sim::StreamKind::Host, "coordinator");
    for (int rank = 0; rank < ranks; ++rank) {
      const auto device = static_cast<std::uint32_t>(rank);
      streams_.push_back({program_.add_stream(device, sim::StreamKind::Receive, "from 0"),
                          program_.add_stream(device, sim::StreamKind::Compute, "worker"),
                          program_.add_stream(device, sim::StreamKind::Send, "to 0")});
    }
  }

  void add(const BatchRecord& batch) {
    std::vector<Handout::Item> items;
    double sum = 0;
    double work = 0;
    for (const NodeRecord& node : batch.nodes) {
      items.push_back({node.node_class, node.work});
      sum += node.cpu.value();
      work += static_cast<double>(node.work);
      first_of_class_.emplace(node.node_class, node.cpu);
    }
    const double together = sum > 0 ? kDelivery.value() * work / sum : 1;
    under_way_.assign(streams_.size(), {});
    done_.clear();
    Handout handout(items, static_cast<int>(streams_.size()));
    using Free = std::pair<Seconds, std::size_t>;
    std::priority_queue<Free, std::vector<Free>, std::greater<>> free;
    for (std::size_t rank = 0; rank < streams_.size(); ++rank) {
      free.push({rank == 0 ? Seconds() : network_.latency, rank});
    }
    while (!free.empty()) {
      const auto [time, rank] = free.top();
      free.pop();
      const std::vector<std::size_t> taken =
          handout.take_some(static_cast<int>(rank), rank == 0 ? 0 : together);
      Seconds busy;
      for (const std::size_t index : taken) {
        busy += cost(batch.nodes[index], rank);
      }
      if (!taken.empty()) {
        deliver(rank, busy);
        free.push({time + busy, rank});
      }
    }
    const sim::NodeId merge = on(coordinator_, batch.between);
    for (const sim::NodeId result : done_) {
      program_.depend(merge, result);
    }
    last_ = merge;
  }

  Seconds time() {
    program_.finalize();
    return to_seconds(sim::run(program_).makespan);
  }

 private:
  struct Streams {
    sim::StreamId in;
    sim::StreamId worker;
    sim::StreamId out;
  };

  // The way of a message and what the coordinator does for it, beside other messages.
  sim::NodeId message(sim::StreamId stream) {
    const sim::Demand demand{messages_, 1};
    return program_.add_shared_work(stream, to_sim_time(network_.latency), network_.overhead,
                                    {&demand, 1}, {});
  }

  sim::NodeId on(sim::StreamId stream, Seconds duration) {
    return program_.add_work(stream, to_sim_time(duration), {});
  }

  // Its own processor time, and at first that of making what its class shares.
  Seconds cost(const NodeRecord& node, std::size_t rank) {
    const auto [owner, is_first] = owners_.emplace(node.node_class, rank);
    const bool is_cold = known_[rank].insert(node.node_class).second && !is_first;
    return is_cold ? node.cpu + first_of_class_.at(node.node_class) : node.cpu;
  }

  void deliver(std::size_t rank, Seconds work) {
    const Streams& own = streams_[rank];
    if (rank == 0) {
      done_.push_back(on(own.worker, work));
      start_after(done_.back(), last_);
      return;
    }
    std::vector<sim::NodeId>& earlier = under_way_[rank];
    const sim::NodeId sent = message(own.in);
    const auto ahead = static_cast<std::size_t>(kDeliveriesUnderWay);
    start_after(sent, earlier.size() < ahead ? last_ : earlier[earlier.size() - ahead]);
    const sim::NodeId worked = on(own.worker, work);
    program_.depend(worked, sent);
    const sim::NodeId result = message(own.out);
    program_.depend(result, worked);
    earlier.push_back(result);
    done_.push_back(result);
  }

  void start_after(sim::NodeId node, sim::NodeId before) {
    if (before != sim::kNone) {
      program_.depend(node, before);
    }
  }

  Network network_;
  sim::Program program_;
  sim::ResourceId messages_;
  sim::StreamId coordinator_;
  std::vector<Streams> streams_;
  std::vector<std::set<std::uint64_t>> known_;  // classes, by rank
  std::map<std::uint64_t, std::size_t> owners_;
  std::map<std::uint64_t, Seconds> first_of_class_;
  std::vector<std::vector<sim::NodeId>> under_way_;  // results of this batch, by rank
  std::vector<sim::NodeId> done_;
  sim::NodeId last_ = sim::kNone;
};

}  // namespace

std::vector<Projection> project(const std::vector<BatchRecord>& batches, int most,
                                const Network& network) {
  std::vector<int> counts;
  for (int ranks = 1; ranks < most; ranks *= 2) {
    counts.push_back(ranks);
  }
  counts.push_back(most);
  std::vector<Projection> projections;
  for (const int ranks : counts) {
    Replay replay(ranks, network);
    for (const BatchRecord& batch : batches) {
      replay.add(batch);
    }
    Projection projection;
    projection.ranks = ranks;
    projection.time = replay.time();
    const Seconds alone = projections.empty() ? projection.time : projections.front().time;
    projection.speed_up = projection.time > Seconds() ? alone / projection.time : 1;
    projection.efficiency = projection.speed_up / ranks;
    projections.push_back(projection);
  }
  return projections;
}

}  // namespace orrery::search
