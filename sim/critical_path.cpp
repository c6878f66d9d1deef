// SPDX-License-Identifier: Apache-2.0
#include "sim/critical_path.hpp"

#include <algorithm>

#include "sim/engine_state.hpp"

namespace orrery::sim {

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

std::vector<SimTime> slack(const Program& program, const Timeline& timeline) {
  const std::size_t n = program.num_nodes();
  std::vector<std::uint32_t> successors_left(n, 0);
  std::vector<SimTime> latest_end(n, timeline.makespan);
  std::vector<SimTime> result(n, kNever);
  // Positions of the streams, walked backwards; a stream's next node is one more successor.
  for (NodeId node = 0; node < n; ++node) {
    if (timeline.end[node] == kNever) {
      continue;
    }
    for (const NodeId producer : program.predecessors(node)) {
      ++successors_left[producer];
    }
  }
  std::vector<std::size_t> tail(program.num_streams());
  for (StreamId stream = 0; stream < program.num_streams(); ++stream) {
    const std::span<const NodeId> nodes = program.nodes_of(stream);
    tail[stream] = nodes.size();
    while (tail[stream] > 0 && timeline.end[nodes[tail[stream] - 1]] == kNever) {
      --tail[stream];
    }
    for (std::size_t i = 0; i + 1 < tail[stream]; ++i) {
      ++successors_left[nodes[i]];
    }
  }
  std::vector<NodeId> ready;
  for (NodeId node = 0; node < n; ++node) {
    if (timeline.end[node] != kNever && successors_left[node] == 0) {
      ready.push_back(node);
    }
  }
  while (!ready.empty()) {
    const NodeId node = ready.back();
    ready.pop_back();
    const SimTime latest_start = latest_end[node] - (timeline.end[node] - timeline.start[node]);
    result[node] = latest_start - timeline.start[node];
    const auto bound = [&](NodeId earlier) {
      latest_end[earlier] = std::min(latest_end[earlier], latest_start);
      if (--successors_left[earlier] == 0) {
        ready.push_back(earlier);
      }
    };
    for (const NodeId producer : program.predecessors(node)) {
      bound(producer);
    }
    for (const StreamId stream : program.streams_of(node)) {
      --tail[stream];
      if (tail[stream] > 0) {
        bound(program.nodes_of(stream)[tail[stream] - 1]);
      }
    }
  }
  return result;
}

}  // namespace orrery::sim
