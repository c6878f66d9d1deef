// SPDX-License-Identifier: Apache-2.0
#include "plan/stage/stage_placement.hpp"

#include <utility>

#include "plan/schedule_traits.hpp"

namespace orrery::plan {

StagePlacement placement_of(const sim::ScheduleTraits& traits, int chunks,
                            std::vector<std::uint16_t> device_of) {
  return {.device_of = std::move(device_of),
          .whole_backwards = !may_cut_backwards(traits, chunks),
          .two_directions = traits.two_directions,
          .joins_passes = traits.joins_passes,
          .shares_ends = traits.shares_output_layer,
          .fills_frozen = traits.fills_frozen,
          .by_modules = traits.by_modules,
          .copies_to_host = traits.copies_to_host,
          .spreads_attention = traits.spreads_attention,
          .recomputes = traits.recomputes,
          .flushes = traits.synchronous && !traits.lists_updates};
}

}  // namespace orrery::plan
