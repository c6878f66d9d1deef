// SPDX-License-Identifier: Apache-2.0
// Evaluation in dependency order. Each stream runs as far as it can; where an input is missing it
// is parked at the stream that will compute it and goes on once it is there. Nodes
// without a stream are computed when the first node asks for them. Nodes of several streams are
// computed by the stream that arrives last.
#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/error.hpp"
#include "sim/engine/engine_state.hpp"

namespace orrery::sim {
namespace {

class Sweep {
 public:
  explicit Sweep(const Program& program)
      : program_(program), streams_(program.num_streams()), parked_(program.num_streams()) {
    start_.resize(program.num_nodes(), kNever);
    end_.resize(program.num_nodes(), kNever);
  }

  // False on a deadlock.
  bool evaluate() {
    for (std::size_t i = program_.num_streams(); i > 0; --i) {
      runnable_.push_back(static_cast<StreamId>(i - 1));
    }
    while (!runnable_.empty()) {
      const StreamId stream = runnable_.back();
      runnable_.pop_back();
      advance(stream);
    }
    for (StreamId stream = 0; stream < program_.num_streams(); ++stream) {
      if (streams_[stream].cursor < program_.nodes_of(stream).size()) {
        return false;
      }
    }
    for (NodeId node = 0; node < program_.num_nodes(); ++node) {
      if (end_[node] == kNever && compute_loose(node) != kNone) {
        return false;
      }
    }
    return true;
  }

  Timeline timeline() {
    Timeline result;
    for (const SimTime end : end_) {
      result.makespan = std::max(result.makespan, end);
    }
    result.start = std::move(start_);
    result.end = std::move(end_);
    result.peaks = memory_peaks(program_, result.start, result.end, result.out_of_memory);
    return result;
  }

 private:
  struct StreamState {
    std::uint32_t cursor = 0;
    std::uint32_t arrived = 0;  // nodes of several streams at whose turn this stream has been
    SimTime free{0};
  };
  struct Parked {
    StreamId stream;
    NodeId missing;
  };

  void set(NodeId node, SimTime start) {
    start_[node] = start;
    end_[node] = checked_sum(start, program_.latency(node));
  }

  void advance(StreamId stream) {
    StreamState& state = streams_[stream];
    const std::span<const NodeId> nodes = program_.nodes_of(stream);
    while (state.cursor < nodes.size()) {
      const NodeId node = nodes[state.cursor];
      const std::span<const StreamId> members = program_.streams_of(node);
      if (members.size() > 1 && !all_arrived(node, state, members.size())) {
        break;
      }
      SimTime start = state.free;
      const NodeId missing = latest_input(node, start);
      if (missing != kNone) {
        park(stream, missing);
        break;
      }
      if (members.size() > 1) {
        advance_members(node, members, start, stream);
      } else {
        set(node, start);
        state.free = end_[node];
        ++state.cursor;
      }
    }
    wake(stream);
  }

  // Counts the stream in, once. Only the last one to arrive goes on to look at the inputs.
  bool all_arrived(NodeId node, StreamState& state, std::size_t num_members) {
    if (arrived_.empty()) {
      arrived_.resize(program_.num_nodes(), 0);
    }
    if (state.arrived <= state.cursor) {
      state.arrived = state.cursor + 1;
      ++arrived_[node];
    }
    return arrived_[node] == num_members;
  }

  // Raises `start` to the end of the last input; returns an input that has no end yet, or kNone.
  NodeId latest_input(NodeId node, SimTime& start) {
    for (const NodeId producer : program_.predecessors(node)) {
      if (end_[producer] == kNever) {
        const NodeId missing = compute_loose(producer);
        if (missing != kNone) {
          return missing;
        }
      }
      start = std::max(start, end_[producer]);
    }
    return kNone;
  }

  // Computes a node without streams and, first, those of its inputs that have none either. Returns
  // the node of a stream that is still missing (the node itself, if it belongs to a stream); in a
  // cycle of such nodes, which never ends, one of them.
  NodeId compute_loose(NodeId node) {
    if (!program_.streams_of(node).empty()) {
      return node;
    }
    loose_.assign(1, node);
    while (!loose_.empty()) {
      const NodeId current = loose_.back();
      const std::size_t depth = loose_.size();
      SimTime start{0};
      for (const NodeId producer : program_.predecessors(current)) {
        if (end_[producer] != kNever) {
          start = std::max(start, end_[producer]);
        } else if (!program_.streams_of(producer).empty()) {
          return producer;
        } else {
          loose_.push_back(producer);
        }
      }
      if (loose_.size() > program_.num_dependencies() + 1) {
        return current;
      }
      if (loose_.size() == depth) {
        if (end_[current] == kNever) {
          set(current, start);
        }
        loose_.pop_back();
      }
    }
    return kNone;
  }

  void advance_members(NodeId node, std::span<const StreamId> members, SimTime start,
                       StreamId current) {
    for (const StreamId member : members) {
      start = std::max(start, streams_[member].free);
    }
    set(node, start);
    for (const StreamId member : members) {
      streams_[member].free = end_[node];
      ++streams_[member].cursor;
      if (member != current) {
        runnable_.push_back(member);
      }
    }
  }

  // A cycle of nodes without streams has nowhere to wait: the stream stays where it is.
  void park(StreamId stream, NodeId missing) {
    const std::span<const StreamId> streams = program_.streams_of(missing);
    if (!streams.empty()) {
      parked_[streams.front()].push_back({stream, missing});
    }
  }

  void wake(StreamId stream) {
    std::erase_if(parked_[stream], [&](const Parked& parked) {
      if (end_[parked.missing] == kNever) {
        return false;
      }
      runnable_.push_back(parked.stream);
      return true;
    });
  }

  const Program& program_;
  std::vector<SimTime> start_;
  std::vector<SimTime> end_;
  std::vector<StreamState> streams_;
  std::vector<std::vector<Parked>> parked_;  // per stream: those that wait for one of its nodes
  std::vector<std::uint32_t> arrived_;  // per node of several streams; empty without such nodes
  std::vector<StreamId> runnable_;
  std::vector<NodeId> loose_;
};

}  // namespace

Timeline sweep(const Program& program) {
  ORRERY_CHECK(program.finalized(), "a program is finalized before it runs");
  if (!program.has_shared_demands() && !program.has_counters()) {
    Sweep sweep(program);
    if (sweep.evaluate()) {
      return sweep.timeline();
    }
  }
  return run(program);
}

}  // namespace orrery::sim
