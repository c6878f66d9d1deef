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
  const std::vector<DeviceBlock> packs = soonest_blocks(slices_of_all(params), params.stages);
  std::map<std::pair<int, int>, Place> places;  // by group size and device
  std::vector<std::size_t> packs_of(static_cast<std::size_t>(params.stages));
  for (const DeviceBlock& pack : packs) {
    for (int device = pack.first; device < pack.first + pack.size; ++device) {
      ++places[{pack.size, device}].units;
      ++packs_of[static_cast<std::size_t>(device)];
    }
  }
  PipelineOrder result = bare_order(params.stages, 2);
  for (auto& [at, place] : places) {
    const auto device = static_cast<std::uint16_t>(at.second);
    place.stage = add_chain(result, {device, device}, {.units = place.units});
  }
  for (const auto& [at, place] : places) {
    const auto [group, device] = at;
    if (device % group == 0) {  // its other devices follow, with as many units each
      const auto before = [first = place.stage](int k) { return first + 2 * k; };
      const auto after = [first = place.stage](int k) { return first + 2 * k + 1; };
      add_exchange(result, group, Lane::Forward, before, Lane::Forward, after);
      add_exchange(result, group, Lane::Gradient, after, Lane::Gradient, before);
    }
  }
  for (std::size_t device = 0; device < packs_of.size(); ++device) {
    result.passes[device].reserve(4 * packs_of[device]);
  }
  for (const DeviceBlock& pack : packs) {
    auto at = places.find({pack.size, pack.first});  // the places of its other devices follow
    for (int device = pack.first; device < pack.first + pack.size; ++device, ++at) {
      Place& place = at->second;
      add_pass(result, PassKind::Forward, place.stage, place.done);
      add_pass(result, PassKind::Forward, place.stage + 1, place.done);
      add_pass(result, PassKind::Backward, place.stage + 1, place.done);
      add_pass(result, PassKind::Backward, place.stage, place.done++);
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
