// SPDX-License-Identifier: Apache-2.0
// Random programs as plain data, so that properties can rebuild them relabelled, scaled or
// replicated, and evaluate them by other means than the engine.
#pragma once

#include <rapidcheck.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "sim/engine/engine.hpp"

namespace orrery::sim {

struct NodeSpec {
  std::int64_t duration = 0;
  std::vector<StreamId> streams;
  std::vector<NodeId> inputs;
  std::vector<CounterWait> waits;
  std::vector<CounterChange> changes;
  double bytes = 0.0;
  std::vector<ResourceId> route;
};

struct BufferSpec {
  PoolId pool;
  std::int64_t bytes;
  MemoryCategory category;
  NodeId producer;
  std::vector<NodeId> consumers;
};

struct ProgramSpec {
  std::uint32_t num_streams = 0;
  std::uint32_t num_pools = 0;
  std::vector<double> capacities;
  std::vector<std::int64_t> counters;
  std::vector<NodeSpec> nodes;
  std::vector<BufferSpec> buffers;
};

struct SpecOptions {
  bool counters = false;
  bool cycles = false;  // inputs may come later in the program: deadlocks
  bool shared = false;
  int max_nodes = 40;
};

// Uniform from the first case on: ranges of rapidcheck grow with the case otherwise.
inline int pick(int low, int high_inclusive) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange(low, high_inclusive + 1));
}

template <typename T>
void keep_unique(std::vector<T>& values) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
}

inline std::vector<std::uint32_t> pick_some(int most, std::uint32_t bound) {
  std::vector<std::uint32_t> picked;
  for (int count = bound > 0 ? pick(0, most) : 0; count > 0; --count) {
    picked.push_back(static_cast<std::uint32_t>(pick(0, static_cast<int>(bound) - 1)));
  }
  keep_unique(picked);
  return picked;
}

inline ProgramSpec any_spec(const SpecOptions& options) {
  ProgramSpec spec;
  const int num_nodes = pick(0, options.max_nodes);
  const bool cycles = options.cycles && pick(0, 2) == 0;
  spec.num_streams = static_cast<std::uint32_t>(pick(1, 5));
  spec.num_pools = static_cast<std::uint32_t>(pick(1, 3));
  for (int i = options.counters ? pick(1, 3) : 0; i > 0; --i) {
    spec.counters.push_back(pick(0, 3));
  }
  for (int i = options.shared ? pick(1, 4) : 0; i > 0; --i) {
    spec.capacities.push_back(1e11 * pick(1, 20));
  }
  for (int i = 0; i < num_nodes; ++i) {
    NodeSpec node;
    node.duration = pick(0, 12);
    node.streams = pick_some(3, spec.num_streams);
    const bool anywhere = cycles && pick(0, 9) == 0;
    node.inputs = pick_some(3, static_cast<std::uint32_t>(anywhere ? num_nodes : i));
    for (const CounterId counter : pick_some(2, static_cast<CounterId>(spec.counters.size()))) {
      node.waits.push_back({counter, pick(-2, 2)});
    }
    for (const CounterId counter : pick_some(2, static_cast<CounterId>(spec.counters.size()))) {
      node.changes.push_back({counter, pick(-1, 2), pick(0, 1) == 1});
    }
    node.route = pick_some(3, static_cast<std::uint32_t>(spec.capacities.size()));
    node.bytes = node.route.empty() ? 0.0 : pick(0, 500);
    spec.nodes.push_back(std::move(node));
  }
  for (int i = num_nodes > 0 ? pick(0, 12) : 0; i > 0; --i) {
    const auto category = static_cast<MemoryCategory>(pick(0, 7));
    const int producer = pick(-1, num_nodes - 1);
    spec.buffers.push_back({static_cast<PoolId>(pick(0, static_cast<int>(spec.num_pools) - 1)),
                            pick(0, 50), category,
                            producer < 0 ? kNone : static_cast<NodeId>(producer),
                            pick_some(3, static_cast<std::uint32_t>(num_nodes))});
  }
  return spec;
}

// The nodes in the order given (a permutation that keeps the order of each stream).
inline Program build(const ProgramSpec& spec, const std::vector<NodeId>& order) {
  Program program;
  for (std::uint32_t i = 0; i < spec.num_streams; ++i) {
    program.add_stream(i, StreamKind::Compute, "stream " + std::to_string(i));
  }
  for (std::uint32_t i = 0; i < spec.num_pools; ++i) {
    program.add_pool(i, ByteCount(60), "pool");
  }
  for (const double capacity : spec.capacities) {
    program.add_resource(capacity, "link");
  }
  for (const std::int64_t initial : spec.counters) {
    program.add_counter(initial);
  }
  std::vector<NodeId> label(order.size());
  for (const NodeId original : order) {
    const NodeSpec& node = spec.nodes[original];
    label[original] =
        program.add_flow(node.streams, {node.duration}, Bytes(node.bytes), node.route, {});
  }
  for (NodeId original = 0; original < order.size(); ++original) {
    const NodeSpec& node = spec.nodes[original];
    for (const NodeId input : node.inputs) {
      program.depend(label[original], label[input]);
    }
    for (const CounterWait& wait : node.waits) {
      program.wait_for(label[original], wait.counter, wait.at_least);
    }
    for (const CounterChange& change : node.changes) {
      program.adjust(label[original], change.counter, change.delta, change.at_start);
    }
  }
  for (const BufferSpec& buffer : spec.buffers) {
    const NodeId producer = buffer.producer == kNone ? kNone : label[buffer.producer];
    const BufferId id =
        program.add_buffer(buffer.pool, ByteCount(buffer.bytes), buffer.category, producer);
    for (const NodeId consumer : buffer.consumers) {
      program.consume(id, label[consumer]);
    }
  }
  program.finalize();
  return program;
}

inline Program build(const ProgramSpec& spec) {
  std::vector<NodeId> order(spec.nodes.size());
  std::iota(order.begin(), order.end(), NodeId{0});
  return build(spec, order);
}

inline bool equal(const Timeline& a, const Timeline& b) {
  const auto same_peak = [](const PoolPeak& x, const PoolPeak& y) {
    return x.bytes == y.bytes && x.at == y.at && x.by_category == y.by_category &&
           x.owners == y.owners;
  };
  const bool same_memory =
      a.out_of_memory.has_value() == b.out_of_memory.has_value() &&
      (!a.out_of_memory || (a.out_of_memory->pool == b.out_of_memory->pool &&
                            a.out_of_memory->at == b.out_of_memory->at &&
                            a.out_of_memory->needed == b.out_of_memory->needed &&
                            a.out_of_memory->owners == b.out_of_memory->owners));
  const bool same_deadlock = a.deadlock.has_value() == b.deadlock.has_value() &&
                             (!a.deadlock || (a.deadlock->nodes_left == b.deadlock->nodes_left &&
                                              a.deadlock->blocked == b.deadlock->blocked));
  return a.makespan == b.makespan && a.start == b.start && a.end == b.end &&
         std::equal(a.peaks.begin(), a.peaks.end(), b.peaks.begin(), b.peaks.end(), same_peak) &&
         same_memory && same_deadlock;
}

}  // namespace orrery::sim
