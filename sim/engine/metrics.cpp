// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/metrics.hpp"

#include <algorithm>

namespace orrery::sim {
namespace {

bool is_backward(PassKind kind) {
  return kind == PassKind::Backward || kind == PassKind::InputGrad || kind == PassKind::WeightGrad;
}

// The node before this one on a stream; kNone for the first. Streams list their nodes by id.
NodeId previous_on(const Program& program, StreamId stream, NodeId node) {
  const std::span<const NodeId> nodes = program.nodes_of(stream);
  const auto place = std::lower_bound(nodes.begin(), nodes.end(), node);
  return place == nodes.begin() ? kNone : *(place - 1);
}

struct Phases {
  SimTime warm_up_end;
  SimTime cool_down_start;
};

Phases find_phases(const Program& program, const Timeline& timeline, std::span<const NodeId> nodes,
                   const StreamUse& use) {
  SimTime first_backward = SimTime::max();
  SimTime last_forward{-1};
  for (const NodeId node : nodes) {
    if (is_backward(program.tag(node).pass)) {
      first_backward = std::min(first_backward, timeline.start[node]);
    } else if (program.tag(node).pass == PassKind::Forward) {
      last_forward = std::max(last_forward, timeline.end[node]);
    }
  }
  Phases phases{use.first_start, use.last_end};
  if (first_backward != SimTime::max()) {
    phases.warm_up_end = first_backward;
  }
  if (last_forward.ps >= 0) {
    phases.cool_down_start = std::max(last_forward, phases.warm_up_end);
  }
  return phases;
}

void add_by_phase(SimTime from, SimTime to, const Phases& phases, StreamUse& use) {
  const SimTime warm = std::clamp(phases.warm_up_end, from, to);
  const SimTime cool = std::clamp(phases.cool_down_start, warm, to);
  use.idle_warm_up += warm - from;
  use.idle_steady += cool - warm;
  use.idle_cool_down += to - cool;
}

void add_by_cause(SimTime gap, const Program& program, const StartBound& bound, StreamUse& use) {
  switch (bound.by) {
    case BoundBy::Counter:
      use.idle_for_counter += gap;
      break;
    case BoundBy::Data:
      if (program.tag(bound.node).comm != CommKind::None) {
        use.idle_for_transfer += gap;
      } else {
        use.idle_for_data += gap;
      }
      break;
    case BoundBy::Stream:
    case BoundBy::Nothing:
      use.idle_for_peer += gap;
      break;
  }
}

StreamUse use_of(const Program& program, const Timeline& timeline, StreamId stream) {
  // What ran is a prefix: streams keep their order.
  std::span<const NodeId> nodes = program.nodes_of(stream);
  const auto ran = std::find_if(nodes.begin(), nodes.end(),
                                [&](NodeId node) { return timeline.end[node].ps < 0; });
  nodes = nodes.first(static_cast<std::size_t>(ran - nodes.begin()));
  StreamUse use{};
  if (nodes.empty()) {
    return use;
  }
  use.first_start = timeline.start[nodes.front()];
  use.last_end = timeline.end[nodes.back()];
  const Phases phases = find_phases(program, timeline, nodes, use);
  SimTime free = use.first_start;
  for (const NodeId node : nodes) {
    const SimTime start = timeline.start[node];
    if (start > free) {
      add_by_phase(free, start, phases, use);
      add_by_cause(start - free, program, start_bound(program, timeline, node), use);
    }
    use.busy += timeline.end[node] - start;
    free = timeline.end[node];
  }
  return use;
}

}  // namespace

StartBound start_bound(const Program& program, const Timeline& timeline, NodeId node) {
  const SimTime start = timeline.start[node];
  if (!timeline.released_by.empty() && timeline.released_by[node] != kNone) {
    return {BoundBy::Counter, timeline.released_by[node]};
  }
  for (const StreamId stream : program.streams_of(node)) {
    const NodeId previous = previous_on(program, stream, node);
    if (previous != kNone && timeline.end[previous] == start) {
      return {BoundBy::Stream, previous};
    }
  }
  for (const NodeId producer : program.predecessors(node)) {
    if (timeline.end[producer] == start) {
      return {BoundBy::Data, producer};
    }
  }
  return {};
}

std::vector<StreamUse> stream_use(const Program& program, const Timeline& timeline) {
  std::vector<StreamUse> uses;
  uses.reserve(program.num_streams());
  for (StreamId stream = 0; stream < program.num_streams(); ++stream) {
    uses.push_back(use_of(program, timeline, stream));
  }
  return uses;
}

}  // namespace orrery::sim
