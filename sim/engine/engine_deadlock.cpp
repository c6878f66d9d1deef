// SPDX-License-Identifier: Apache-2.0
// A deadlock in words. Each line is a stream, its head and the first thing that holds it back; the
// lines of one cycle of streams that wait for each other come first.
#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "sim/engine/engine_state.hpp"

namespace orrery::sim {
namespace {

constexpr std::size_t kMaxLines = 20;

class Explainer {
 public:
  Explainer(const Program& program, const std::vector<SimTime>& end,
            const std::vector<std::int64_t>& counters)
      : program_(program), end_(end), counters_(counters) {
    head_.assign(program.num_streams(), kNone);
    for (StreamId stream = 0; stream < program.num_streams(); ++stream) {
      for (const NodeId node : program.nodes_of(stream)) {
        if (!done(node)) {
          head_[stream] = node;
          break;
        }
      }
    }
  }

  Deadlock explain() const {
    Deadlock result;
    result.nodes_left = static_cast<std::size_t>(std::count(end_.begin(), end_.end(), kNever));
    std::vector<NodeId> loose;  // unfinished nodes without a stream
    for (NodeId node = 0; node < program_.num_nodes(); ++node) {
      if (!done(node) && program_.streams_of(node).empty()) {
        loose.push_back(node);
      }
    }
    const std::vector<StreamId> streams = blocked_streams();
    for (const StreamId stream : streams) {
      if (result.blocked.size() == kMaxLines) {
        break;
      }
      result.blocked.push_back(fmt::format("{}: {} waits for {}", program_.streams()[stream].name,
                                           node_text(program_, head_[stream]),
                                           reason(head_[stream])));
    }
    if (streams.empty()) {
      for (std::size_t i = 0; i < std::min(loose.size(), kMaxLines); ++i) {
        result.blocked.push_back(
            fmt::format("{} waits for {}", node_text(program_, loose[i]), reason(loose[i])));
      }
    }
    const std::size_t total = streams.empty() ? loose.size() : streams.size();
    if (total > kMaxLines) {
      result.blocked.back() = fmt::format("and {} more", total - kMaxLines + 1);
    }
    return result;
  }

 private:
  bool done(NodeId node) const { return end_[node] != kNever; }

  NodeId missing_input(NodeId node) const {
    for (const NodeId producer : program_.predecessors(node)) {
      if (!done(producer)) {
        return producer;
      }
    }
    return kNone;
  }

  StreamId missing_stream(NodeId node) const {
    for (const StreamId stream : program_.streams_of(node)) {
      if (head_[stream] != node) {
        return stream;
      }
    }
    return kNone;
  }

  // The stream whose head has to end before the node can start; kNone when none is known. A node
  // without streams passes on what it waits for itself; at most as many steps as there are nodes.
  StreamId blocking_stream(NodeId node) const {
    for (std::size_t steps = 0; steps < program_.num_nodes(); ++steps) {
      const StreamId member = missing_stream(node);
      if (member != kNone) {
        return member;
      }
      node = missing_input(node);
      if (node == kNone) {
        return kNone;
      }
      if (!program_.streams_of(node).empty()) {
        return program_.streams_of(node).front();
      }
    }
    return kNone;
  }

  // All streams with nodes left, the members of a cycle of waiting streams first.
  std::vector<StreamId> blocked_streams() const {
    std::vector<StreamId> all;
    for (StreamId stream = 0; stream < head_.size(); ++stream) {
      if (head_[stream] != kNone) {
        all.push_back(stream);
      }
    }
    if (all.empty()) {
      return all;
    }
    std::vector<char> seen(head_.size(), 0);
    StreamId stream = all.front();
    while (stream != kNone && seen[stream] == 0) {
      seen[stream] = 1;
      stream = blocking_stream(head_[stream]);
    }
    if (stream == kNone) {
      return all;
    }
    std::vector<StreamId> ordered;  // one lap of the cycle
    std::fill(seen.begin(), seen.end(), 0);
    for (; seen[stream] == 0; stream = blocking_stream(head_[stream])) {
      seen[stream] = 1;
      ordered.push_back(stream);
    }
    std::copy_if(all.begin(), all.end(), std::back_inserter(ordered),
                 [&](StreamId other) { return seen[other] == 0; });
    return ordered;
  }

  std::string place_text(NodeId node) const {
    if (program_.streams_of(node).empty()) {
      return node_text(program_, node);
    }
    const StreamId stream = program_.streams_of(node).front();
    return fmt::format("{} on {}", node_text(program_, node), program_.streams()[stream].name);
  }

  std::string reason(NodeId node) const {
    const StreamId member = missing_stream(node);
    if (member != kNone) {
      return fmt::format("{}, which is at {}", program_.streams()[member].name,
                         node_text(program_, head_[member]));
    }
    const NodeId input = missing_input(node);
    if (input != kNone) {
      if (program_.streams_of(input).empty() && missing_input(input) != kNone) {
        return fmt::format("{}, which waits for {}", place_text(input),
                           place_text(missing_input(input)));
      }
      return place_text(input);
    }
    for (const CounterWait& wait : program_.counter_waits(node)) {
      if (counters_[wait.counter] < wait.at_least) {
        return fmt::format("counter {} to reach {} (it is {})", wait.counter, wait.at_least,
                           counters_[wait.counter]);
      }
    }
    return "nothing";
  }

  const Program& program_;
  const std::vector<SimTime>& end_;
  const std::vector<std::int64_t>& counters_;
  std::vector<NodeId> head_;  // per stream: its first unfinished node
};

}  // namespace

Deadlock explain_deadlock(const Program& program, const std::vector<SimTime>& end,
                          const std::vector<std::int64_t>& counters) {
  return Explainer(program, end, counters).explain();
}

}  // namespace orrery::sim
