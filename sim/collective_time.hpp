// SPDX-License-Identifier: Apache-2.0
// How long a collective takes alone, message by message, without a program. Ranks sit around a
// non-blocking switch: each has one port in and one port out of `bandwidth`, which concurrent
// messages share by max-min fairness. Equal to expanding it into a program and running that.
// Steps are made when the first rank needs them and dropped when the last one has left: memory is
// O(ranks + messages in flight). While no two messages meet on a port every message is one
// addition (about 10 ns); as soon as two meet, the flow-level network takes over from the start.
#pragma once

#include <cstdint>
#include <functional>

#include "base/sim_time.hpp"
#include "sim/collective.hpp"

namespace orrery::sim {

struct CollectiveCosts {
  SimTime latency;           // of every message
  BytesPerSecond bandwidth;  // of a port, > 0
  SimTime endpoint{};        // spent by a rank before its first step and after each of its steps
  // Spent by the receiver of a message it adds to its own data; empty: nothing.
  std::function<SimTime(ByteCount)> reduce{};

  // Of one message alone on its ports; BeyondSimulatedTime if it does not end in 106 days.
  SimTime message(ByteCount bytes) const;
};

struct CollectiveRun {
  SimTime time;  // the last rank is done
  std::uint64_t messages;
  bool shared;  // messages met on a port
};

CollectiveRun collective_time(const CollectiveAlgorithm& algorithm, int ranks, ByteCount size,
                              const CollectiveCosts& costs);

}  // namespace orrery::sim
