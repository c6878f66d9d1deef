// SPDX-License-Identifier: Apache-2.0
// Runs a program. `run` is the event engine: total order (time, node id) on equal times, each node
// enters the queue once, shared resources by exact max-min. `sweep` evaluates a program without
// shared demands and counters in dependency order, without a queue, with the same result (any other
// program it hands to `run`). At one instant all ends come before all starts, ends in order of id;
// nodes that wait for counters start after the others, smallest id first, re-checked one by one.
// Deterministic; O((V + E) log V) and O(V + E).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/engine/program.hpp"

namespace orrery::sim {

struct PoolPeak {
  ByteCount bytes;
  SimTime at;
  std::vector<ByteCount> by_category;  // at the peak, indexed by MemoryCategory; sums to bytes
  std::vector<BufferId> owners;        // live buffers at the peak, largest first, at most 16
};

// Throughout, a buffer is live from its allocation up to but excluding its release: releases come
// before allocations at equal times, and a buffer without life time occupies nothing.

// The first instant at which a pool exceeded its capacity.
struct OutOfMemory {
  PoolId pool;
  SimTime at;
  ByteCount needed;
  std::vector<BufferId> owners;  // largest first, at most 16
};

// Nothing can start although nodes are left: what each blocked stream's head waits for.
struct Deadlock {
  std::size_t nodes_left;
  std::vector<std::string> blocked;  // "stage 1 compute: forward of micro-batch 3 waits for ..."
};

struct Timeline {
  SimTime makespan;
  std::vector<SimTime> start;  // per node; {-1} when it never ran
  std::vector<SimTime> end;
  // Per node: the resource that set its rate in the end; kNone for fixed durations and rate bounds.
  // Empty for programs without shared demands.
  std::vector<ResourceId> bottleneck;
  // Per node that counters held back: the node whose change let it start, else kNone. Empty for
  // programs without counters.
  std::vector<NodeId> released_by;
  std::vector<PoolPeak> peaks;  // per pool
  std::optional<OutOfMemory> out_of_memory;
  std::optional<Deadlock> deadlock;  // when set, makespan covers the part that ran
};

Timeline run(const Program& program);
Timeline sweep(const Program& program);

// Peaks of every pool from known start and end times (frees before allocations at equal times).
std::vector<PoolPeak> memory_peaks(const Program& program, const std::vector<SimTime>& start,
                                   const std::vector<SimTime>& end,
                                   std::optional<OutOfMemory>& out_of_memory);

}  // namespace orrery::sim
