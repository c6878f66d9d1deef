// SPDX-License-Identifier: Apache-2.0
// No pipeline: every pack of sequences runs on a group of devices of its own size, aligned blocks
// of the devices, which exchange sequence for heads (all-to-all) in the middle of each pass. The
// slices of a micro-batch (pack) are the devices of its group. Packs with large groups first, each
// to the group that is free first; all take the same time on their groups, as FlexSP's planner
// makes them.
#include <map>
#include <utility>
#include <vector>

#include "sim/orders/order_blocks.hpp"

namespace orrery::sim {
namespace {

constexpr int kMaxDevices = 256;  // exchanges are edges between all pairs of a group

std::string check(const ScheduleParams& params) {
  ScheduleParams all = params;
  all.chunks = 2;
  const std::vector<int> groups =
      params.slices_of.empty() ? std::vector<int>{params.slices} : params.slices_of;
  return first_broken(
      {check_sizes(params), check_no_cap(params), check_one_replica(params),
       check_own_iterations(params), check_own_warm_up(params), check_one_chunk(params),
       check_sizes(all), check_at_most(params.stages, kMaxDevices, "stages (devices)"),
       check_slices_of(params), check_block_sizes(groups, params.stages, "a group (slices)")});
}

struct Place {  // of the packs of one group size on one device
  int units = 0;
  int stage = -1;  // before the exchange; the next one is after it
  int done = 0;
};

PipelineOrder order(const ScheduleParams& params) {
  const auto devices = static_cast<std::size_t>(params.stages);
  const std::vector<DeviceBlock> packs = soonest_blocks(slices_of_all(params), params.stages);
  std::map<int, std::vector<Place>> places;  // by group size, then device
  for (const DeviceBlock& pack : packs) {
    std::vector<Place>& of_size = places[pack.size];
    of_size.resize(devices);
    ++of_size[static_cast<std::size_t>(pack.first)].units;
  }
  PipelineOrder result = bare_order(params.stages, 2);
  std::vector<std::size_t> packs_of(devices);
  for (auto& [size, of_size] : places) {
    for (std::size_t device = 0; device < devices; ++device) {
      const auto group = static_cast<std::size_t>(size);
      Place& place = of_size[device];
      place.units = of_size[device - device % group].units;  // as the first device of its group
      packs_of[device] += static_cast<std::size_t>(place.units);
      if (place.units > 0) {
        const auto at = static_cast<std::uint16_t>(device);
        place.stage = add_chain(result, {at, at}, {.units = place.units});
      }
    }
  }
  for (const auto& [size, of_size] : places) {
    for (std::size_t device = 0; device < devices; device += static_cast<std::size_t>(size)) {
      if (of_size[device].units > 0) {  // the other devices of the group follow
        const auto before = [first = of_size[device].stage](int k) { return first + 2 * k; };
        const auto after = [before](int k) { return before(k) + 1; };
        add_exchange(result, size, Lane::Forward, before, Lane::Forward, after);
        add_exchange(result, size, Lane::Gradient, after, Lane::Gradient, before);
      }
    }
  }
  for (std::size_t device = 0; device < devices; ++device) {
    result.passes[device].reserve(4 * packs_of[device]);
  }
  for (const DeviceBlock& pack : packs) {
    for (int k = 0; k < pack.size; ++k) {
      const auto device = static_cast<std::size_t>(pack.first + k);
      Place& place = places.find(pack.size)->second[device];
      const auto before = static_cast<std::uint16_t>(place.stage);
      const auto after = static_cast<std::uint16_t>(place.stage + 1);
      const auto unit = static_cast<std::uint32_t>(place.done++);
      result.passes[device].insert(
          result.passes[device].end(),
          {Pass(PassKind::Forward, before, unit), Pass(PassKind::Forward, after, unit),
           Pass(PassKind::Backward, after, unit), Pass(PassKind::Backward, before, unit)});
    }
  }
  return result;
}

double most(const ScheduleParams&) { return 1; }

}  // namespace

extern const Schedule schedule_flexsp = {
    .name = "flexsp",
    .description = "sequence-parallel groups of different size, one for each pack of sequences",
    .constraints =
        "stages are devices, at most 256; slices: devices of a group, a divisor of them; 1 chunk",
    .source = "Wang et al., FlexSP, ASPLOS 2025 (arXiv 2412.01523), section 4",
    .splits_backward = false,
    .uses_chunks = false,
    .synchronous = true,
    .check = check,
    .order = order,
    .most_activations = most,
    .uses_slices = true,
    .packs_sequences = true,
    .in_plans = true,
};

}  // namespace orrery::sim
