// SPDX-License-Identifier: Apache-2.0
// No pipeline: every pack of sequences runs on a group of devices of its own size, aligned blocks
// of the devices, which exchange sequence for heads (all-to-all) in the middle of each pass. The
// slices of a micro-batch (pack) are the devices of its group. Packs with large groups first, each
// to the group that is free first; all take the same time on their groups, as FlexSP's planner
// makes them.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "sim/order_blocks.hpp"

namespace orrery::sim {
namespace {

constexpr int kMaxDevices = 256;  // exchanges are edges between all pairs of a group

std::vector<int> groups_of(const ScheduleParams& params) {
  return params.slices_of.empty()
             ? std::vector<int>(static_cast<std::size_t>(params.micro_batches), params.slices)
             : params.slices_of;
}

std::string check_groups(const ScheduleParams& params) {
  if (!check_sizes(params).empty()) {
    return "";  // named elsewhere
  }
  const std::vector<int> groups =
      params.slices_of.empty() ? std::vector<int>{params.slices} : params.slices_of;
  for (const int group : groups) {
    if (group < 1 || params.stages % group != 0) {
      int below = std::clamp(group, 1, params.stages);
      while (params.stages % below != 0) {
        --below;
      }
      return fmt::format(
          "a group (slices) must divide the {} devices, and {} does not: set it to {}",
          params.stages, group, below);
    }
  }
  return params.slices_of.empty() ||
                 params.slices_of.size() == static_cast<std::size_t>(params.micro_batches)
             ? ""
             : fmt::format("groups of {} packs (micro-batches) are required, not of {}",
                           params.micro_batches, params.slices_of.size());
}

std::string check(const ScheduleParams& params) {
  ScheduleParams all = params;
  all.chunks = 2;
  return first_broken({check_sizes(params), check_no_cap(params), check_one_replica(params),
                       check_own_iterations(params), check_own_warm_up(params),
                       check_one_chunk(params), check_sizes(all),
                       check_at_most(params.stages, kMaxDevices, "stages (devices)"),
                       check_groups(params)});
}

PipelineOrder order(const ScheduleParams& params) {
  const int p = params.stages;
  const std::vector<DeviceBlock> packs = soonest_blocks(groups_of(params), p);
  const auto slot = [p](int group, int device) {
    return static_cast<std::size_t>(group) * static_cast<std::size_t>(p) +
           static_cast<std::size_t>(device);
  };
  std::vector<int> units(slot(p + 1, 0), 0);  // packs by group size and device
  for (const DeviceBlock& pack : packs) {
    for (int device = pack.first; device < pack.first + pack.size; ++device) {
      ++units[slot(pack.size, device)];
    }
  }
  PipelineOrder result;
  result.passes.resize(static_cast<std::size_t>(p));
  result.pieces = 2;  // before and after the exchange
  std::vector<int> stage_of(units.size(), -1);
  for (int group = 1; group <= p; ++group) {
    for (int device = 0; device < p; ++device) {
      if (units[slot(group, device)] == 0) {
        continue;
      }
      const auto on = static_cast<std::uint16_t>(device);
      const int stage = add_chain(result, {on, on}, {.units = units[slot(group, device)]});
      stage_of[slot(group, device)] = stage;
      const int first = device / group * group;
      for (int other = first; other < first + group; ++other) {
        if (other != device) {  // it has as many units, so its two stages lie as far away
          const int from = stage + 2 * (other - device);
          add_edge(result, Lane::Forward, from, Lane::Forward, stage + 1);
          add_edge(result, Lane::Gradient, from + 1, Lane::Gradient, stage);
        }
      }
    }
  }
  std::vector<int> next(units.size(), 0);
  for (const DeviceBlock& pack : packs) {
    for (int device = pack.first; device < pack.first + pack.size; ++device) {
      const int stage = stage_of[slot(pack.size, device)];
      const int unit = next[slot(pack.size, device)]++;
      add_pass(result, PassKind::Forward, stage, unit);
      add_pass(result, PassKind::Forward, stage + 1, unit);
      add_pass(result, PassKind::Backward, stage + 1, unit);
      add_pass(result, PassKind::Backward, stage, unit);
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
};

}  // namespace orrery::sim
