// SPDX-License-Identifier: Apache-2.0
// A trained backbone as 1f1b, and frozen encoders of the next iteration, data-parallel over all
// devices, in its idle times: portions of a batch run where they end before the backbone goes on,
// so that it is never delayed; the rest follows its last pass. By default a portion takes half a
// forward of the device's share of the backbone and a device has as many as there are
// micro-batches. With slices k > 1 the encoders take k portions for a micro-batch, and device d has
// those of micro-batches d, d + p, ...
#include <algorithm>
#include <utility>

#include "base/limits.hpp"
#include "sim/orders/fill_idle.hpp"
#include "sim/orders/list_builder.hpp"
#include "sim/orders/order_blocks.hpp"
#include "sim/schedule.hpp"

namespace orrery::sim {
namespace {

constexpr int kPortionsPerForward = 2;
constexpr int kMostPortions = 64;

int portions_of(const ScheduleParams& params, int device) {
  const int shares = params.micro_batches / params.stages +
                     (device < params.micro_batches % params.stages ? 1 : 0);
  return params.slices == 1 ? params.micro_batches : shares * params.slices;
}

int most_portions(const ScheduleParams& params) {
  const int shares = params.micro_batches / std::max(1, params.stages) + 1;
  const std::int64_t most = std::int64_t{shares} * std::max(0, params.slices);
  return static_cast<int>(std::min<std::int64_t>(most, limits::kMaxPasses));
}

std::string check(const ScheduleParams& params) {
  ScheduleParams all = params;
  all.chunks = 2;
  all.micro_batches = std::max(params.micro_batches, most_portions(params));
  all.slices = 1;
  return first_broken({check_sizes(params), check_equal_slices(params), check_no_cap(params),
                       check_one_replica(params), check_own_iterations(params),
                       check_one_chunk(params), check_own_warm_up(params),
                       check_at_most(params.slices, kMostPortions, "slices (frozen portions)"),
                       check_at_least(params.micro_batches, params.slices > 1 ? params.stages : 1,
                                      "micro-batches (each device has one to encode)"),
                       check_sizes(all)});
}

PipelineOrder skeleton(const ScheduleParams& params) {
  PipelineOrder result = empty_order(params, {}, 3);
  result.pieces = 1;
  result.parts_per_share = kPortionsPerForward;
  const std::vector<std::uint16_t> devices = loop_placement(params);
  add_chain(result, devices, {.units = params.micro_batches});
  for (const std::uint16_t device : devices) {
    add_chain(result, {device},
              {.units = portions_of(params, device), .role = Role::Frozen, .forward_only = true});
  }
  result.parts.assign(devices.size() * 2, 1);
  std::fill_n(result.parts.begin(), devices.size(), kPortionsPerForward);
  return result;
}

PipelineOrder order(const ScheduleParams& params) {
  PipelineOrder bare = skeleton(params);
  const ScheduleParams timed = with_stage_times(bare, params);
  ScheduleParams alone = params;
  alone.slices = 1;
  const PipelineOrder backbone = find_schedule("1f1b", "diffusionpipe").order(alone);
  return fill_idle(std::move(bare), timed, backbone, params.stages);
}

}  // namespace

extern const Schedule schedule_diffusionpipe = {
    .name = "diffusionpipe",
    .description = "1f1b with frozen layers of the next iteration in its idle times",
    .constraints =
        "1 chunk per device; slices: portions of the frozen layers per micro-batch, "
        "with micro-batches at least stages",
    .source = "Tian et al., DiffusionPipe, MLSys 2024 (arXiv 2405.01248), bubble filling",
    .splits_backward = false,
    .uses_chunks = false,
    .synchronous = true,
    .check = check,
    .order = order,
    .most_activations = one_per_stage,
    .uses_slices = true,
    .uses_times = true,
    .fills_frozen = true,
    .in_plans = true,
    .in_search = true,
};

}  // namespace orrery::sim
