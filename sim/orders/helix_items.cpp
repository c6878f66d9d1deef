// SPDX-License-Identifier: Apache-2.0
#include "sim/orders/helix_items.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

namespace orrery::sim {

Refusal check_helix_parts(const ScheduleParams& params) {
  const std::int64_t p = std::clamp<std::int64_t>(params.stages, 1, kMaxVirtualStages);
  const std::int64_t v = std::clamp<std::int64_t>(params.chunks, 1, kMaxVirtualStages);
  const std::int64_t parts = p * (2 * p * v + 1);
  if (parts <= kMaxVirtualStages) {
    return {};
  }
  const std::int64_t chunks = (kMaxVirtualStages / p - 1) / (2 * p);
  std::int64_t stages = p;
  while (stages * (2 * stages * v + 1) > kMaxVirtualStages) {
    --stages;
  }
  return too_many(fmt::format("stages x (2 stages x chunks + 1) must be at most {}, not {}",
                              kMaxVirtualStages, parts),
                  chunks > 0 ? Size::Chunks : Size::Stages,
                  static_cast<double>(chunks > 0 ? chunks : std::max<std::int64_t>(stages, 1)));
}

}  // namespace orrery::sim
