// SPDX-License-Identifier: Apache-2.0
#include "sim/orders/frozen_portions.hpp"

#include <algorithm>
#include <utility>

#include "base/limits.hpp"
#include "sim/orders/fill_idle.hpp"
#include "sim/orders/list_builder.hpp"
#include "sim/orders/order_blocks.hpp"

namespace orrery::sim {
namespace {

constexpr int kPortionsPerForward = 2;
constexpr int kMostPortions = 64;

// Of a device.
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

}  // namespace

std::string check_frozen_portions(const ScheduleParams& params) {
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

PipelineOrder with_frozen_portions(const PipelineOrder& backbone, const ScheduleParams& params) {
  PipelineOrder bare = empty_order(params, {}, 3);
  bare.pieces = params.chunks;
  bare.parts_per_share = kPortionsPerForward * params.chunks;
  for (const Chain& chain : backbone.chains) {
    const auto first = backbone.device_of.begin() + chain.first;
    add_chain(bare, {first, first + chain.stages}, chain);
  }
  const int stages = bare.num_virtual_stages;
  for (const std::uint16_t device : device_run(0, params.stages)) {
    add_chain(bare, {device},
              {.units = portions_of(params, device), .role = Role::Frozen, .forward_only = true});
  }
  bare.parts.assign(bare.device_of.size(), 1);
  std::fill_n(bare.parts.begin(), stages, kPortionsPerForward);
  const ScheduleParams timed = with_stage_times(bare, params);
  return fill_idle(std::move(bare), timed, backbone, stages);
}

}  // namespace orrery::sim
