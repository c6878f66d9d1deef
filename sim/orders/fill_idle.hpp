// SPDX-License-Identifier: Apache-2.0
// Lists with other work in their idle times, which never delays them: it runs where it ends before
// the next pass can start, and behind the last one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/schedule.hpp"

namespace orrery::sim {

// Between two passes of a device, in time units of the parameters.
struct IdleTime {
  std::int64_t begin = 0;
  std::int64_t end = 0;    // none (the largest number) behind the last pass
  std::size_t before = 0;  // place in its list of the pass that follows
};

// Idle times of every device, in order, when all run their lists as early as they can. `params` has
// times for all virtual stages. O(passes).
std::vector<std::vector<IdleTime>> idle_times(const PipelineOrder& order,
                                              const ScheduleParams& params);

// When runs of `together` passes that take `takes` each end, one after the other in these idle
// times; the first `most` of them.
std::vector<std::int64_t> ends_in(const std::vector<IdleTime>& idle, std::int64_t takes,
                                  int together, std::int64_t most);

// A list with `count` such passes, forwards of `stage`, in its idle times.
std::vector<Pass> filled(const std::vector<Pass>& list, const std::vector<IdleTime>& idle,
                         std::int64_t takes, int stage, int count);

}  // namespace orrery::sim
