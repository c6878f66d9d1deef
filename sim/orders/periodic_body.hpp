// SPDX-License-Identifier: Apache-2.0
// The body that a schedule without end repeats, after Tessel (Lin et al., HPCA 2024, section 4), as
// in modulo scheduling: blocks of one micro-batch, each on a set of devices, get start times that
// repeat every period, so that the period is the least that dependencies, exclusive devices and
// memory allow. A block's start / period is the micro-batch it belongs to inside the body. Periods
// are tried from the largest device load upwards, each by an exhaustive search under a budget of
// steps; every search that runs out of it doubles the distance to the next one. Of the start times
// first those within a period of when a block is ready, from the first block on; all others where a
// device could hold more than its memory, so that a block may gain by a later one, and where other
// blocks could come before the first. Times in whole units. Deterministic.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "sim/schedule.hpp"

namespace orrery::sim {

struct BodyBlock {
  struct After {
    int block = 0;  // an earlier one, which must have ended
    int delay = 0;  // so long ago
  };
  std::vector<int> devices;
  int time = 1;
  std::int64_t memory = 0;  // change on each device: > 0 at the start, < 0 at the end
  std::vector<After> after;
};

struct PeriodicBody {
  int period = 0;
  int load_bound = 0;       // the largest load of a device: no period is shorter
  std::vector<int> starts;  // per block
  bool proven = true;       // no shorter period exists
};

struct BodyLimits {
  int in_flight = 1;             // micro-batches in the body, at most
  std::int64_t cap = 0;          // memory of each device
  std::int64_t steps = 100'000;  // of the search for one period, each of some hundred start times
  int coarse = 0;                // > 0: a period is followed by one that is 1 / coarse longer
  int least = 1;                 // a period that is known to be no longer than the shortest
};

// Nothing when not even one micro-batch after the other fits. All searches together look at a few
// times as many start times as one may, unless `coarse` is set.
std::optional<PeriodicBody> shortest_body(const std::vector<BodyBlock>& blocks, int devices,
                                          const BodyLimits& limits);

// The order that repeats the shortest body of a skeleton's passes (all chains with the same units)
// for the times of the parameters, one set per virtual stage or for all; what of it lies before the
// first and after the last micro-batch is left out. `cap` in units of params.activation.
PipelineOrder repeat_shortest_body(PipelineOrder skeleton, const ScheduleParams& params,
                                   std::int64_t cap);

}  // namespace orrery::sim
