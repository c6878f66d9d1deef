// SPDX-License-Identifier: Apache-2.0
// Schedules on a V placement that repeat one building block every six slots (Qi et al., Pipeline
// Parallelism with Controllable Memory, NeurIPS 2024, sections 3 and 4): the slots of the forward
// and the input gradient of both chunks of a device; weight gradients fill the free slots, oldest
// first. The order of slots is the order of the list. `reorder` first moves warm-up and cool-down
// passes to earlier free slots where that does not raise the peak of activations.
// O(p m) slots; reordering moves O(p^2) passes, each in a small part of the time that the slots it
// passes over would take.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "sim/schedule.hpp"

namespace orrery::sim {

inline constexpr int kPeriod = 6;  // slots of a building block

// Slots of one device: forwards of its first and second chunk, then the gradients of the second
// and the first.
using VBlock = std::array<int, 4>;

// Two chunks; warm-up 0 reorders warm-up and cool-down, 1 keeps the plain pattern.
Refusal check_v_pattern(const ScheduleParams& params);

// Whether so many patterns are made in less than about 20 s.
Refusal check_pattern_slots(const ScheduleParams& params, int patterns);

PipelineOrder v_pattern(const ScheduleParams& params, const std::vector<VBlock>& blocks,
                        bool reorder);

// Blocks of a third, a half and all of the activations of 1f1b; of the half with `extra`
// micro-batches more in flight.
std::vector<VBlock> v_min_blocks(int stages);
std::vector<VBlock> v_half_blocks(int stages, int extra);
std::vector<VBlock> v_zb_blocks(int stages);

// What the schedules of this family share, and what each states for itself.
struct VPatternSchedule {
  std::string_view name;
  std::string_view description;
  PipelineOrder (*order)(const ScheduleParams&);
  double (*most_activations)(const ScheduleParams&);
};
constexpr Schedule v_pattern_schedule(const VPatternSchedule& own) {
  return {
      .name = own.name,
      .description = own.description,
      .constraints = "2 chunks per device; warm-up 0 (reordered) or 1 (plain pattern)",
      .source =
          "Qi et al., Pipeline Parallelism with Controllable Memory, NeurIPS 2024 (arXiv "
          "2405.15362), section 3",
      .traits = {.splits_backward = true, .cuts_every_backward = true, .uses_chunks = true},
      .check = check_v_pattern,
      .order = own.order,
      .most_activations = own.most_activations,
      .in_plans = true,
      .in_search = true,
  };
}

}  // namespace orrery::sim
