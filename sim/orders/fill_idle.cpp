// SPDX-License-Identifier: Apache-2.0
#include "sim/orders/fill_idle.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "sim/orders/list_builder.hpp"

namespace orrery::sim {
namespace {

constexpr std::int64_t kNoEnd = std::numeric_limits<std::int64_t>::max();

std::int64_t fits(const IdleTime& idle, std::int64_t takes) {
  return takes > 0 ? (idle.end - idle.begin) / takes : kNoEnd;
}

}  // namespace

std::vector<std::vector<IdleTime>> idle_times(const PipelineOrder& order,
                                              const ScheduleParams& params) {
  PipelineOrder skeleton = order;
  for (std::vector<Pass>& list : skeleton.passes) {
    list.clear();
  }
  ListBuilder lists(std::move(skeleton), params, false);
  std::vector<std::vector<IdleTime>> idle(order.passes.size());
  std::vector<std::size_t> position(order.passes.size(), 0);
  for (bool progress = true; progress;) {
    progress = false;
    for (std::size_t d = 0; d < idle.size(); ++d) {
      const std::vector<Pass>& list = order.passes[d];
      for (std::size_t& at = position[d]; at < list.size(); ++at) {
        const std::int64_t arrives = lists.arrival_or_never(list[at]);
        if (arrives == ListBuilder::kNever) {
          break;
        }
        const std::int64_t free = lists.free(static_cast<int>(d));
        if (arrives > free) {
          idle[d].push_back({free, arrives, at});
        }
        lists.put(list[at], std::max(arrives, free));
        progress = true;
      }
    }
  }
  for (std::size_t d = 0; d < idle.size(); ++d) {
    idle[d].push_back({lists.free(static_cast<int>(d)), kNoEnd, order.passes[d].size()});
  }
  return idle;
}

std::vector<std::int64_t> ends_in(const std::vector<IdleTime>& idle, std::int64_t takes,
                                  int together, std::int64_t most) {
  std::vector<std::int64_t> ends;
  std::int64_t left = most * together;
  std::int64_t begun = 0;  // of the current run
  for (const IdleTime& time : idle) {
    const std::int64_t count = std::min(left, fits(time, takes));
    for (std::int64_t k = together - begun; k <= count; k += together) {
      ends.push_back(time.begin + k * takes);
    }
    begun = (begun + count) % together;
    left -= count;
  }
  return ends;
}

std::vector<Pass> filled(const std::vector<Pass>& list, const std::vector<IdleTime>& idle,
                         std::int64_t takes, int stage, int count) {
  std::vector<Pass> result;
  result.reserve(list.size() + static_cast<std::size_t>(count));
  std::size_t copied = 0;
  int done = 0;
  for (const IdleTime& time : idle) {
    result.insert(result.end(), list.begin() + static_cast<std::ptrdiff_t>(copied),
                  list.begin() + static_cast<std::ptrdiff_t>(time.before));
    copied = time.before;
    for (std::int64_t fit = std::min<std::int64_t>(count - done, fits(time, takes)); fit > 0;
         --fit) {
      result.emplace_back(PassKind::Forward, static_cast<std::uint16_t>(stage),
                          static_cast<std::uint32_t>(done++));
    }
  }
  return result;
}

}  // namespace orrery::sim
