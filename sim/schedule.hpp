// SPDX-License-Identifier: Apache-2.0
// Pipeline schedules (docs/sim.md): a schedule is a pure function from parameters to a
// placement of model chunks on devices and an order of passes per device. Dependencies, transfers
// and memory effects are derived by rule (sim/pipeline.hpp), never written in a schedule.
// One file in sim/schedules/ defines one constant `schedule_<file name>`.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/sim_time.hpp"
#include "sim/tags.hpp"

namespace orrery::sim {

struct ScheduleParams {
  int stages = 1;         // pipeline devices p
  int micro_batches = 1;  // m
  int chunks = 1;         // model chunks per device v
  int warm_up = 0;        // 0: the schedule's own rule; 1: doubled warm-up (1F1B)
};

// One pass of a device's list. `virtual_stage` is chunk-major along the network: 0 .. v p - 1.
struct Pass {
  PassKind kind = PassKind::Forward;
  std::uint16_t virtual_stage = 0;
  std::uint32_t micro_batch = 0;
  bool operator==(const Pass&) const = default;
};

struct PipelineOrder {
  int num_virtual_stages = 0;
  std::vector<std::uint16_t> device_of;   // per virtual stage
  std::vector<std::vector<Pass>> passes;  // per device, in order
  int micro_batches = 0;
};

struct Schedule {
  std::string_view name;         // kebab-case, as on the command line
  std::string_view description;  // one line
  std::string_view constraints;  // for `orrery list schedules`
  std::string_view source;       // paper and section
  bool splits_backward;          // B and W apart, else one fused pass
  bool uses_chunks;              // v > 1 allowed
  bool synchronous;
  // "" when the parameters are allowed, else the broken constraint in words.
  std::string (*check)(const ScheduleParams&);
  PipelineOrder (*order)(const ScheduleParams&);  // parameters must have passed check
};

std::span<const Schedule* const> schedule_table();  // generated; sorted by name
// By name; Error with the nearest name when unknown. `where` is cited.
const Schedule& find_schedule(std::string_view name, std::string_view where);

// Building blocks of the files in sim/schedules/.

// Virtual stage s on device s mod p ("loop placement"; linear when v = 1).
std::vector<std::uint16_t> loop_placement(const ScheduleParams& params);

// An order without passes whose lists have room for `kinds` passes per chunk and micro-batch (2 for
// a fused backward, 3 for a split one).
PipelineOrder empty_order(const ScheduleParams& params, std::vector<std::uint16_t> device_of,
                          int kinds);

// Constraints, each "" when met: positive sizes within the limits, one chunk per device, the
// schedule's own warm-up only, micro-batches a multiple of stages.
std::string check_sizes(const ScheduleParams& params);
std::string check_one_chunk(const ScheduleParams& params);
std::string check_own_warm_up(const ScheduleParams& params);
std::string check_multiple_of_stages(const ScheduleParams& params);
// The first of them that is broken, or "".
std::string first_broken(std::initializer_list<std::string> constraints);

// Micro-batches 0 .. count - 1 of one virtual stage, in order.
void append_all(std::vector<Pass>& list, PassKind kind, int virtual_stage, int count);

// `ahead` forwards, then one backward and one forward in turn until the forwards are used up, then
// the remaining backwards: `total` of each. forward(k) and backward(k) give the k-th Pass.
template <typename Forward, typename Backward>
void append_one_forward_one_backward(std::vector<Pass>& list, int total, int ahead, Forward forward,
                                     Backward backward) {
  int next = 0;
  for (; next < std::min(ahead, total); ++next) {
    list.push_back(forward(next));
  }
  for (int k = 0; k < total; ++k) {
    list.push_back(backward(k));
    if (next < total) {
      list.push_back(forward(next++));
    }
  }
}

}  // namespace orrery::sim
