// SPDX-License-Identifier: Apache-2.0
// Placements and skeletons that several schedules share. A skeleton is an order without passes,
// with room for them. Device numbers 0 .. p - 1; virtual stages as in sim/schedule.hpp.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sim/schedule.hpp"

namespace orrery::sim {

// Virtual stages 0 .. p - 1 down the devices and p .. 2p - 1 back up.
std::vector<std::uint16_t> v_placement(int stages);
// The same, `turns` times over the devices, every second one backwards.
std::vector<std::uint16_t> zigzag_placement(int stages, int turns);

// One chunk on each device, or two on a V.
Refusal check_one_or_two_chunks(const ScheduleParams& params);

// One chain on the given devices; `kinds` passes per virtual stage and unit.
PipelineOrder one_chain(const ScheduleParams& params, std::vector<std::uint16_t> device_of,
                        int kinds);
// Adds a chain after the others and gives its first virtual stage.
int add_chain(PipelineOrder& order, const std::vector<std::uint16_t>& device_of, Chain chain);

// An order of chains yet to be added, on so many lists, with `pieces` as in PipelineOrder.
PipelineOrder bare_order(int lists, int pieces);
// `count` devices from `first` on.
std::vector<std::uint16_t> device_run(int first, int count);

// A service (copy engine, server), whose list the schedule writes, and a chain of them on as many
// devices, each with a list of its own: forwards of all its units. The first virtual stage.
int add_service(PipelineOrder& order, int device, int units);
int add_services(PipelineOrder& order, int first_device, int count, int units);
void add_edge(PipelineOrder& order, Lane from_lane, int from, Lane to_lane, int to, int shift = 0);

// Everyone waits for all others: passes of virtual stage to(k) for those of from(l), l != k.
template <typename From, typename To>
void add_exchange(PipelineOrder& order, int members, Lane from_lane, From from, Lane to_lane, To to,
                  int shift = 0) {
  for (int member = 0; member < members; ++member) {
    for (int other = 0; other < members; ++other) {
      if (other != member) {
        add_edge(order, from_lane, from(other), to_lane, to(member), shift);
      }
    }
  }
}

// Puts gradients, and weight gradients and updates, on devices of their own, with the edges that
// order the passes of a unit.
void split_placement(PipelineOrder& order, std::vector<std::uint16_t> gradients,
                     std::vector<std::uint16_t> weight_grads);

// Cuts loads into `parts` runs, none empty, with the least largest sum; the run of each load.
// At least as many loads as parts. O(loads log sum).
std::vector<std::uint16_t> least_largest_runs(const std::vector<std::int64_t>& loads, int parts);

// Aligned blocks of devices, one for each of `sizes` (divisors of `devices`), the large ones first;
// each takes one unit of time on the block that is free first.
struct DeviceBlock {
  int size = 1;
  int first = 0;  // device
};
std::vector<DeviceBlock> soonest_blocks(std::vector<int> sizes, int devices);
// "" when all sizes, called `what`, divide the devices.
Refusal check_block_sizes(const std::vector<int>& sizes, int devices, std::string_view what);

// After all forwards of a list, their backwards in reverse.
void append_reversed(std::vector<Pass>& forwards);

// Adds the forward, input- or weight-gradient pass of a unit to the list of its device.
void add_pass(PipelineOrder& order, PassKind kind, int virtual_stage, int unit,
              bool joined = false);

}  // namespace orrery::sim
