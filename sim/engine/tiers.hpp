// SPDX-License-Identifier: Apache-2.0
// Memory tiers: objects that live in one tier (host, disk, another device) and are worked on in
// another, by a program of this room. A move is a flow over the channels between two tiers; it
// shares with moves of the same duplex group and with all that touch a tier of bounded bandwidth.
// Moves of one direction run in order, as on a copy engine. Steps run in order on one processor.
//
// Policy, scripted by the order of the steps: resident are the next `resident` distinct objects. An
// object that enters the window is loaded, one that leaves it is dropped, and what steps made dirty
// is stored; both happen once `batch` objects have left, as one transfer each way (Superpipeline's
// k and k', Abbasi and Lim 2024; a double buffer is 2 and 1, a sliding window w and 1). A step
// waits for the transfer that brings its object. Dirty bytes either occupy the space of the object,
// so that loads wait for them, or a buffer of their own, so that steps do. O(steps x resident) to
// script, then the engine. Deterministic.
#pragma once

#include <string>
#include <vector>

#include "base/sim_time.hpp"
#include "base/units.hpp"

namespace orrery::sim {

struct MemoryTier {
  std::string name;
  ByteCount capacity;        // 0: no bound
  BytesPerSecond bandwidth;  // all moves together; 0: no bound
};
struct TierChannel {
  int from = 0;
  int to = 0;
  BytesPerSecond bandwidth;
  Seconds latency;
  int duplex_group = -1;  // channels of one group share the bandwidth of the first (half duplex)
};
struct TierGraph {
  std::vector<MemoryTier> tiers;
  std::vector<TierChannel> channels;
  // Channels of the shortest path; Error when there is none.
  std::vector<int> path(int from, int to) const;
};

struct TierMove {
  int tier = 0;  // the other end
  ByteCount bytes;
};
struct TierObject {
  std::string name;
  ByteCount resident;           // bytes it occupies where it is worked on
  std::vector<TierMove> loads;  // when it enters the window; none: a step creates it there
};
inline constexpr int kNoObject = -1;
struct TierStep {
  int object = 0;  // kNoObject: works on what never leaves
  SimTime time;
  std::vector<TierMove> stores;  // what the step makes dirty of its object
};

enum class DirtySpace { OfObject, OwnBuffer };

struct TierPolicy {
  int resident = 2;
  int batch = 1;  // at most `resident`
  DirtySpace dirty = DirtySpace::OwnBuffer;
};

struct TierRun {
  SimTime makespan;              // end of the last step
  SimTime drained;               // end of the last store, too
  SimTime busy;                  // of the steps
  std::vector<SimTime> ends;     // of every step
  std::vector<ByteCount> moved;  // per channel
  ByteCount peak;                // in the tier where steps run
  bool fits = true;              // in its capacity
  SimTime stalls() const { return makespan - busy; }
};

// Steps run in tier `at`.
TierRun run_tiers(const TierGraph& graph, int at, const std::vector<TierObject>& objects,
                  const std::vector<TierStep>& steps, const TierPolicy& policy);

// Groups of `batch` equal partitions in steady state, `resident` of them at once: compute x, load
// u, store z each (Superpipeline): max(x, u, z) a partition while a whole group can be loaded under
// the others, else the group waits batch u - (resident - batch) x longer than it computes.
Seconds steady_partition_time(Seconds compute, Seconds load, Seconds store, int resident, int batch,
                              bool half_duplex);

}  // namespace orrery::sim
