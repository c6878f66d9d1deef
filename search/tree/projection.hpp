// SPDX-License-Identifier: Apache-2.0
// How long a recorded search would take on more ranks: its batches, replayed by the engine of sim/
// with the processor time that every node took. A rank is one thread on a core of its own; rank 0
// works and has a core for coordination, too. Modelled: the hand-out of rank_pool.cpp (classes,
// deliveries, one or two of them under way to a rank), the way of messages, the coordinator's time
// for each message and between batches, the barrier at the end of a batch, and cold caches: a rank
// that meets a class of nodes for the first time also pays for the first node of that class, which
// made the lists. Not modelled: memory bandwidth shared by ranks of one machine. Seconds;
// deterministic; O(nodes log nodes) for each number of ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "search/tree/frontier.hpp"

namespace orrery::search {

struct NodeRecord {
  Seconds cpu;
  std::uint64_t node_class = 0;
  std::uint64_t work = 1;  // as it was estimated
};

struct BatchRecord {
  std::vector<NodeRecord> nodes;
  Seconds between;  // of the coordinator, after this batch and before the next one
};

struct Network {
  Seconds latency = Seconds(150e-6);  // one way: half a pause between two looks, and waking up
  Seconds overhead = Seconds(10e-6);  // of the coordinator, for a message
};

struct Projection {
  int ranks = 1;
  Seconds time;
  double speed_up = 1;
  double efficiency = 1;
};

// For 1, 2, 4, ... ranks and `most`.
std::vector<Projection> project(const std::vector<BatchRecord>& batches, int most,
                                const Network& network = {});

}  // namespace orrery::search
