// SPDX-License-Identifier: Apache-2.0
#include "sim/orders/policy.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace orrery::sim {
Refusal check_looks(const ScheduleParams& params, int policies) {
  if (!check_sizes(params).empty()) {
    return {};  // named elsewhere
  }
  // Where passes have attachments a decision looks at all devices and, about 8 times as slowly, at
  // all chunks of one.
  const std::int64_t most = 500'000'000 / policies;
  const std::int64_t of_one = std::int64_t{params.stages} * params.chunks *
                              (params.stages + std::int64_t{8} * params.chunks);
  const std::int64_t looks = of_one * params.micro_batches;
  if (looks <= most) {
    return {};
  }
  const std::string constraint = fmt::format(
      "with so many passes this takes too long: stages x chunks x micro-batches x (stages + 8 "
      "chunks) must be at most {}, not {}",
      most, looks);
  if (of_one <= most) {
    return too_many(constraint, Size::MicroBatches, static_cast<double>(most / of_one));
  }
  // Of stages that alone are too many: stages x (stages + 8) = most.
  return params.chunks > 1 ? too_many(constraint, Size::Chunks, 1)
                           : too_many(constraint, Size::Stages,
                                      std::floor(std::sqrt(static_cast<double>(most) + 16) - 4));
}

bool within_cap_of_parts(const DeviceView& view, const Pass& pass, std::int64_t cap) {
  const ListBuilder& lists = view.lists;
  if (lists.memory_change(pass) <= 0) {
    return true;
  }
  const std::vector<int>& stages = lists.stages_on(view.device);
  int micro_batches = lists.units(pass.virtual_stage);
  for (const int stage : stages) {
    micro_batches = std::min(micro_batches, lists.units(stage));
  }
  int begun = 0;
  for (const int stage : stages) {
    const int each = lists.units(stage) / micro_batches;
    begun = std::max(begun, (lists.done(Lane::Forward, stage) + each - 1) / each);
  }
  const int each = lists.units(pass.virtual_stage) / micro_batches;
  if (static_cast<int>(pass.micro_batch) / each < begun) {
    return true;  // room was kept when the micro-batch began
  }
  std::int64_t held = lists.memory(view.device);
  for (const int stage : stages) {
    const Pass next = lists.next(Lane::Forward, stage);
    const int left =
        (begun + 1) * (lists.units(stage) / micro_batches) - static_cast<int>(next.micro_batch);
    held += lists.memory_change(next) * left;
  }
  return held <= cap;
}

}  // namespace orrery::sim
