// SPDX-License-Identifier: Apache-2.0
// How many micro-batches of each of its chunks a pipeline device holds at once. A device runs its
// list in order: a forward adds one activation, a whole backward frees it; of a split one the input
// gradient leaves what the weight gradient reads, and the weight gradient frees that. A forward
// that a recompute pass repeats adds its input alone, for which that pass adds the activation. So
// the counts follow from the list alone, whatever the passes cost. Where activations leave for the
// host and return (ScheduleTraits::copies_to_host), the device holds no more than the copies have
// buffers.
#pragma once

#include <vector>

#include "sim/schedule.hpp"

namespace orrery::plan {

struct LiveCounts {
  std::vector<int> stages;  // virtual stages of the device
  // Whether input gradients occur: then the counts of what they leave follow the whole ones.
  bool splits = false;
  // Whether recompute passes occur: then the counts of inputs alone come last.
  bool recomputes = false;
  // Counts per entry of `stages`, whole activations first; only combinations that no other
  // dominates.
  std::vector<std::vector<int>> maxima;
  // Of the micro-batches in flight, those that wait on the host, per entry of `stages`; empty:
  // none.
  std::vector<int> on_host;
  // Buffers for copies to the host and from it, where there are some.
  int leaving = 0;
  int coming = 0;
  // Passes of a frozen encoder in idle times (ScheduleTraits::fills_frozen).
  int portions = 0;
  // Where passes of a stage are on several devices (plan/stage/arcs.hpp), per entry of `stages`:
  // versions of the parameters here, and whether gradients and optimizer are. Empty: all of them.
  std::vector<int> versions;
  std::vector<bool> updates;
};

std::vector<LiveCounts> live_counts(const sim::PipelineOrder& order);  // per device

}  // namespace orrery::plan
