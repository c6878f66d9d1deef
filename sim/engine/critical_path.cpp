// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/critical_path.hpp"

#include <algorithm>
#include <map>
#include <tuple>

#include "sim/engine/engine_state.hpp"

namespace orrery::sim {

namespace {

// Latest ends, from the last nodes backwards; on each stream the next node is one more successor.
class SlackPass {
 public:
  SlackPass(const Program& program, const Timeline& timeline)
      : program_(program),
        timeline_(timeline),
        successors_left_(program.num_nodes(), 0),
        latest_end_(program.num_nodes(), timeline.makespan),
        tail_(program.num_streams()) {
    for (NodeId node = 0; node < program.num_nodes(); ++node) {
      if (ran(node)) {
        for (const NodeId producer : program.predecessors(node)) {
          ++successors_left_[producer];
        }
      }
    }
    for (StreamId stream = 0; stream < program.num_streams(); ++stream) {
      const std::span<const NodeId> nodes = program.nodes_of(stream);
      tail_[stream] = nodes.size();
      while (tail_[stream] > 0 && !ran(nodes[tail_[stream] - 1])) {
        --tail_[stream];
      }
      for (std::size_t i = 0; i + 1 < tail_[stream]; ++i) {
        ++successors_left_[nodes[i]];
      }
    }
  }

  std::vector<SimTime> slacks() {
    std::vector<SimTime> result(program_.num_nodes(), kNever);
    for (NodeId node = 0; node < program_.num_nodes(); ++node) {
      if (ran(node) && successors_left_[node] == 0) {
        ready_.push_back(node);
      }
    }
    while (!ready_.empty()) {
      const NodeId node = ready_.back();
      ready_.pop_back();
      const SimTime slack = latest_end_[node] - timeline_.end[node];
      result[node] = slack;
      const SimTime latest_start = timeline_.start[node] + slack;
      for (const NodeId producer : program_.predecessors(node)) {
        bound(producer, latest_start);
      }
      for (const StreamId stream : program_.streams_of(node)) {
        if (--tail_[stream] > 0) {
          bound(program_.nodes_of(stream)[tail_[stream] - 1], latest_start);
        }
      }
    }
    return result;
  }

 private:
  bool ran(NodeId node) const { return timeline_.end[node] != kNever; }

  void bound(NodeId node, SimTime latest_end) {
    latest_end_[node] = std::min(latest_end_[node], latest_end);
    if (--successors_left_[node] == 0) {
      ready_.push_back(node);
    }
  }

  const Program& program_;
  const Timeline& timeline_;
  std::vector<std::uint32_t> successors_left_;
  std::vector<SimTime> latest_end_;
  std::vector<std::size_t> tail_;  // per stream: nodes whose slack is not known yet
  std::vector<NodeId> ready_;
};

}  // namespace

std::vector<PathStep> critical_path(const Program& program, const Timeline& timeline) {
  std::vector<PathStep> path;
  const auto last = std::find(timeline.end.begin(), timeline.end.end(), timeline.makespan);
  if (last == timeline.end.end()) {
    return path;
  }
  NodeId node = static_cast<NodeId>(last - timeline.end.begin());
  SimTime to = timeline.makespan;
  while (node != kNone) {
    const StartBound bound = start_bound(program, timeline, node);
    path.push_back({node, timeline.start[node], to, bound.by});
    to = timeline.start[node];
    // A node released at the start of another one begins there, not at its end.
    if (bound.by == BoundBy::Counter && timeline.end[bound.node] != to) {
      to = timeline.start[bound.node];
    }
    node = bound.node;
  }
  std::reverse(path.begin(), path.end());
  return path;
}

std::vector<PathShare> path_shares(const Program& program, const Timeline& timeline,
                                   const std::vector<PathStep>& path) {
  std::map<std::tuple<PassKind, CommKind, ResourceId>, SimTime> times;
  for (const PathStep& step : path) {
    const Tag& tag = program.tag(step.node);
    const ResourceId bottleneck =
        timeline.bottleneck.empty() ? kNone : timeline.bottleneck[step.node];
    times[{tag.pass, tag.comm, bottleneck}] += step.to - step.from;
  }
  std::vector<PathShare> shares;
  for (const auto& [key, time] : times) {
    shares.push_back({std::get<0>(key), std::get<1>(key), std::get<2>(key), time});
  }
  std::stable_sort(shares.begin(), shares.end(),
                   [](const PathShare& a, const PathShare& b) { return a.time > b.time; });
  return shares;
}

std::vector<SimTime> slack(const Program& program, const Timeline& timeline) {
  return SlackPass(program, timeline).slacks();
}

}  // namespace orrery::sim
