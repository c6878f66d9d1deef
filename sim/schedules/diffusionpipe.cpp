// SPDX-License-Identifier: Apache-2.0
// A trained backbone as 1f1b, and frozen encoders of the next iteration, data-parallel over all
// devices, in its idle times: portions of a batch run where they end before the backbone goes on,
// so that it is never delayed; the rest follows its last pass. By default a portion takes half a
// forward of the device's share of the backbone and there are as many as micro-batches.
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "sim/list_builder.hpp"
#include "sim/order_blocks.hpp"
#include "sim/schedule.hpp"

namespace orrery::sim {
namespace {

constexpr int kPortionsPerForward = 2;

std::string check(const ScheduleParams& params) {
  ScheduleParams all = params;
  all.chunks = 2;
  return first_broken(
      {check_basics(params), check_one_chunk(params), check_own_warm_up(params), check_sizes(all)});
}

PipelineOrder skeleton(const ScheduleParams& params) {
  PipelineOrder result = empty_order(params, {}, 3);
  result.pieces = 1;
  result.parts_per_share = kPortionsPerForward;
  const std::vector<std::uint16_t> devices = loop_placement(params);
  add_chain(result, devices, {.units = params.micro_batches});
  for (const std::uint16_t device : devices) {
    add_chain(result, {device},
              {.units = params.micro_batches, .role = Role::Frozen, .forward_only = true});
  }
  result.parts.assign(devices.size() * 2, 1);
  std::fill_n(result.parts.begin(), devices.size(), kPortionsPerForward);
  return result;
}

PipelineOrder order(const ScheduleParams& params) {
  PipelineOrder bare = skeleton(params);
  const ScheduleParams timed = with_stage_times(bare, params);
  const PipelineOrder backbone = find_schedule("1f1b", "diffusionpipe").order(params);
  ListBuilder lists(std::move(bare), timed, false);
  std::vector<std::size_t> position(backbone.passes.size(), 0);
  for (bool progress = true; progress;) {
    progress = false;
    for (int d = 0; d < params.stages; ++d) {
      const auto& list = backbone.passes[static_cast<std::size_t>(d)];
      std::size_t& at = position[static_cast<std::size_t>(d)];
      for (; at < list.size(); ++at) {
        const std::optional<std::int64_t> start = lists.arrival(list[at]);
        if (!start) {
          break;
        }
        const int frozen = params.stages + d;
        while (lists.done(Lane::Forward, frozen) < params.micro_batches) {
          const Pass portion = lists.next(Lane::Forward, frozen);
          if (lists.free(d) + lists.duration(portion) > *start) {
            break;
          }
          lists.put(portion, lists.free(d));
        }
        lists.put(list[at], std::max(*start, lists.free(d)));
        progress = true;
      }
    }
  }
  for (int frozen = params.stages; frozen < 2 * params.stages; ++frozen) {
    while (lists.done(Lane::Forward, frozen) < params.micro_batches) {
      lists.put(lists.next(Lane::Forward, frozen), lists.free(frozen - params.stages));
    }
  }
  return lists.take();
}

}  // namespace

extern const Schedule schedule_diffusionpipe = {
    .name = "diffusionpipe",
    .description = "1f1b with frozen layers of the next iteration in its idle times",
    .constraints = "1 chunk per device",
    .source = "Tian et al., DiffusionPipe, MLSys 2024 (arXiv 2405.01248), bubble filling",
    .splits_backward = false,
    .uses_chunks = false,
    .synchronous = true,
    .check = check,
    .order = order,
    .most_activations = one_per_stage,
    .uses_times = true,
    .needs = "frozen parts of the network beside the trained one",
};

}  // namespace orrery::sim
