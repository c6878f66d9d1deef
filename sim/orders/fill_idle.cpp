// SPDX-License-Identifier: Apache-2.0
#include "sim/orders/fill_idle.hpp"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

namespace orrery::sim {
namespace {

// Forwards of `filler` that end until `until`.
void fill(ListBuilder& lists, int device, int filler, std::int64_t until) {
  const std::size_t lane = ListBuilder::number(Lane::Forward, filler);
  const std::int64_t takes = lists.duration(lists.next(Lane::Forward, filler));
  while (lists.done(lane) < lists.units(filler) && lists.free(device) <= until - takes) {
    lists.put_next(lane, lists.free(device));
  }
}

}  // namespace

PipelineOrder fill_idle(PipelineOrder skeleton, const ScheduleParams& params,
                        const PipelineOrder& backbone, int first_filler) {
  ListBuilder lists(std::move(skeleton), params, false);
  const int devices = static_cast<int>(backbone.passes.size());
  std::vector<std::size_t> position(backbone.passes.size(), 0);
  for (bool progress = true; progress;) {
    progress = false;
    for (int device = 0; device < devices; ++device) {
      const std::vector<Pass>& list = backbone.passes[static_cast<std::size_t>(device)];
      std::size_t& at = position[static_cast<std::size_t>(device)];
      for (; at < list.size(); ++at) {
        const std::int64_t start = lists.arrival_or_never(list[at]);
        if (start == ListBuilder::kNever) {
          break;
        }
        fill(lists, device, first_filler + device, start);
        lists.put(list[at], std::max(start, lists.free(device)));
        progress = true;
      }
    }
  }
  for (int device = 0; device < devices; ++device) {
    fill(lists, device, first_filler + device, std::numeric_limits<std::int64_t>::max());
  }
  return lists.take();
}

}  // namespace orrery::sim
