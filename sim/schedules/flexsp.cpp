// SPDX-License-Identifier: Apache-2.0
// No pipeline: every pack of sequences runs on a group of devices of its own size, aligned blocks
// of the devices, which exchange sequence for heads (all-to-all) in the middle of each pass. The
// slices of a micro-batch (pack) are the devices of its group. Packs with large groups first, each
// to the group that is free first; all take the same time on their groups, as FlexSP's planner
// makes them.
#include <cstdint>
#include <map>
#include <vector>

#include "sim/orders/order_blocks.hpp"

namespace orrery::sim {
namespace {

constexpr int kMaxDevices = 256;  // exchanges are edges between all pairs of a group

Refusal check(const ScheduleParams& params) {
  ScheduleParams all = params;
  all.chunks = 2;
  const std::vector<int> groups =
      params.slices_of.empty() ? std::vector<int>{params.slices} : params.slices_of;
  return first_broken(
      {check_sizes(params), check_no_cap(params), check_one_replica(params),
       check_own_iterations(params), check_own_warm_up(params), check_one_chunk(params),
       check_sizes(all), check_at_most(params.stages, kMaxDevices, Size::Stages, "devices"),
       check_slices_of(params), check_block_sizes(groups, params.stages, "a group (slices)")});
}

struct Group {  // of aligned devices, which run packs together
  int packs = 0;
  int stage = -1;  // of the first device before the exchange; that after it, then the next device's
  int done = 0;
};

PipelineOrder order(const ScheduleParams& params) {
  const std::vector<DeviceBlock> packs = soonest_blocks(slices_of_all(params), params.stages);
  std::map<int, std::vector<Group>> groups;  // by size, then along the devices
  const auto group_of = [&](const DeviceBlock& pack) -> Group& {
    return groups[pack.size][static_cast<std::size_t>(pack.first / pack.size)];
  };
  for (const DeviceBlock& pack : packs) {
    groups[pack.size].resize(static_cast<std::size_t>(params.stages / pack.size));
    ++group_of(pack).packs;
  }
  PipelineOrder result = bare_order(params.stages, 2);
  for (auto& [size, of_size] : groups) {
    int device = 0;
    for (Group& group : of_size) {
      group.stage = static_cast<int>(result.device_of.size());
      for (const int end = device + size; device < end; ++device) {
        if (group.packs > 0) {
          const auto at = static_cast<std::uint16_t>(device);
          add_chain(result, {at, at}, {.units = group.packs});
          std::vector<Pass>& list = result.passes[at];
          list.reserve(list.capacity() + 4 * static_cast<std::size_t>(group.packs));
        }
      }
      const auto before = [&group](int k) { return group.stage + 2 * k; };
      const auto after = [&group](int k) { return group.stage + 2 * k + 1; };
      const int members = group.packs > 0 ? size : 0;
      add_exchange(result, members, Lane::Forward, before, Lane::Forward, after);
      add_exchange(result, members, Lane::Gradient, after, Lane::Gradient, before);
    }
  }
  for (const DeviceBlock& pack : packs) {
    Group& group = group_of(pack);
    for (int stage = group.stage; stage < group.stage + 2 * pack.size; stage += 2) {
      add_pass(result, PassKind::Forward, stage, group.done);
      add_pass(result, PassKind::Forward, stage + 1, group.done);
      add_pass(result, PassKind::Backward, stage + 1, group.done);
      add_pass(result, PassKind::Backward, stage, group.done);
    }
    ++group.done;
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
    .traits = {.uses_slices = true, .packs_sequences = true},
    .check = check,
    .order = order,
    .most_activations = most,
    .runs_blocking = true,
    .in_plans = true,
};

}  // namespace orrery::sim
