// SPDX-License-Identifier: Apache-2.0
// Modules with segments over all devices: with slices n > 1 an encoder, whose micro-batches are n
// times as many and as short, and the rest. A device has a queue of forwards and one of backwards,
// segment after segment for a group of micro-batches. Of the two next ones it takes that which can
// start first; when both can, the other kind than before. Forwards wait while memory is full.
#include <algorithm>
#include <vector>

#include "sim/orders/list_builder.hpp"
#include "sim/orders/order_blocks.hpp"
#include "sim/orders/policy.hpp"
#include "sim/orders/segment_queues.hpp"
#include "sim/orders/zero_bubble.hpp"

namespace orrery::sim {
namespace {

// Segments of the encoder: chunks, 0 without one.
int encoder_of(const ScheduleParams& params) {
  return params.slices == 1 && params.warm_up == 0 ? 0 : std::max(params.warm_up, 1);
}

Refusal check(const ScheduleParams& params) {
  ScheduleParams all = params;
  all.chunks = static_cast<int>(
      std::min(std::int64_t{params.chunks} * params.slices, kMaxVirtualStages + 1));
  return first_broken({check_sizes(params), check_equal_slices(params), check_one_replica(params),
                       check_own_iterations(params),
                       check_product({{Size::Stages, params.stages},
                                      {Size::Chunks, params.chunks},
                                      {Size::Slices, params.slices}},
                                     kMaxVirtualStages),
                       check_sizes(all), check_cap(params, 1), check_looks(all, 1),
                       check_warm_up(params, 64, "segments of the encoder"),
                       check_at_least(params.chunks, encoder_of(params) + 1, Size::Chunks,
                                      "segments of all modules")});
}

PipelineOrder skeleton(const ScheduleParams& params) {
  const int n = params.slices;
  const int encoder = encoder_of(params) * params.stages;
  PipelineOrder result = empty_order(params, {}, 2 * n);
  const std::vector<std::uint16_t> devices = loop_placement(params);
  if (encoder > 0) {
    add_chain(result, {devices.begin(), devices.begin() + encoder},
              {.units = params.micro_batches * n});
    add_edge(result, Lane::Forward, encoder - 1, Lane::Forward, encoder);
    add_edge(result, Lane::Gradient, encoder, Lane::Gradient, encoder - 1);
  }
  add_chain(result, {devices.begin() + encoder, devices.end()}, {.units = params.micro_batches});
  result.parts.assign(result.device_of.size(), n);
  std::fill_n(result.parts.begin(), encoder, 1);
  result.parts_per_share = params.chunks * n;
  result.pieces = encoder_of(params) * (n - 1) + params.chunks;
  return result;
}

double most(const ScheduleParams& params) {
  return params.cap > 0 ? params.cap : params.micro_batches;
}

PipelineOrder order(const ScheduleParams& params) {
  PipelineOrder bare = skeleton(params);
  const ScheduleParams timed = with_stage_times(bare, params);
  ScheduleParams pieces = params;  // activations are counted in pieces of a micro-batch
  pieces.chunks = bare.pieces;
  const std::int64_t cap = cap_of(pieces, params.micro_batches);
  const int group = static_cast<int>(std::min<double>(params.stages, most(params)));
  std::vector<int> units(static_cast<std::size_t>(params.chunks), 1);  // of segments
  std::fill_n(units.begin(), encoder_of(params), params.slices);
  const SegmentQueues queues(params, units, group);
  const auto look = [&](const DeviceView& view) { return queues.look(view, cap); };
  return run_policy(std::move(bare), timed, false, Policy{look, no_place, group});
}

}  // namespace

extern const Schedule schedule_dip = {
    .name = "dip",
    .description = "several modules with segments and micro-batches of their own, interleaved",
    .constraints =
        "slices: micro-batches of an encoder per micro-batch, with 2 chunks or more; warm-up: its "
        "segments (chunks); cap at least 1",
    .source = "Xue et al., DIP, ASPLOS 2026 (arXiv 2504.14145), section 4",
    .traits = {.uses_chunks = true, .uses_slices = true, .uses_times = true, .by_modules = true},
    .check = check,
    .order = order,
    .most_activations = most,
    .in_plans = true,
    .in_search = true,
};

}  // namespace orrery::sim
