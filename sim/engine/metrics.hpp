// SPDX-License-Identifier: Apache-2.0
// What a timeline says about each stream, device and node: use and idle time, exposed
// communication, what bounded each start, staleness of versioned objects. All of it follows from
// the program and its times; nodes that never ran count for nothing. Deterministic; O((V + E) log
// V).
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "sim/engine/engine.hpp"

namespace orrery::sim {

// What a node had to wait for last.
enum class BoundBy : std::uint8_t {
  Nothing,  // it started at time 0
  Stream,   // the node before it on one of its streams (wins ties: the stream was not idle)
  Data,     // an input
  Counter,  // a counter
};

struct StartBound {
  BoundBy by = BoundBy::Nothing;
  NodeId node = kNone;  // the stream predecessor, the input or the node that changed the counter
};

// The last thing that a node of the timeline waited for; O(inputs of the node).
StartBound start_bound(const Program& program, const Timeline& timeline, NodeId node);

// Times in [first_start, last_end]; outside of it a stream has nothing to do.
struct StreamUse {
  SimTime first_start;
  SimTime last_end;
  SimTime busy;
  // Idle time by phase: before the first backward-type pass of the stream starts (warm-up), after
  // its last forward pass has ended (cool-down), and the rest. Without backward passes there is no
  // warm-up, without forward passes no cool-down; where both would hold it is warm-up.
  SimTime idle_warm_up;
  SimTime idle_steady;
  SimTime idle_cool_down;
  // The same idle time by what the next node waited for.
  SimTime idle_for_data;      // an input computed elsewhere
  SimTime idle_for_transfer;  // an input that is a communication
  SimTime idle_for_peer;      // another stream of the same group or rendezvous
  SimTime idle_for_counter;
};

// One entry a stream, in the order of their ids; O(nodes and their inputs).
std::vector<StreamUse> stream_use(const Program& program, const Timeline& timeline);

// Communication of a device, by kind and name. A node with a CommKind belongs to the devices of its
// streams; without streams, to those of the nodes that depend on it directly. It is exposed at the
// instants at which it runs and no computation (a node without CommKind on a Compute stream) of the
// device does. Each exposed instant counts once: for the running communication that ends last
// (smallest id on ties), so that the exposed times of a device never exceed the time it does not
// compute.
struct CommunicationUse {
  std::uint32_t device;
  CommKind kind;
  std::uint32_t name;  // index into the names of the program
  SimTime total;       // sum of durations, overlapping ones counted each
  SimTime exposed;
};

// Sorted by device, kind and name.
std::vector<CommunicationUse> communication_use(const Program& program, const Timeline& timeline);

struct VersionReport {
  // Reads by staleness: the newest version written (its writer ended) when the reader started, less
  // the version read.
  std::map<std::int64_t, std::int64_t> reads_by_staleness;
  std::int64_t max_staleness = 0;
  // Versions kept at once, at most: a version is kept from its write (the initial one from time 0)
  // to the end of its last reader, and at least until the next version is written.
  std::int64_t max_kept = 0;
};

// One entry for each object with versions, in the order of the program.
std::vector<VersionReport> version_reports(const Program& program, const Timeline& timeline);

}  // namespace orrery::sim
