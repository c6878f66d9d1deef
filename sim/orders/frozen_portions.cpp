// SPDX-License-Identifier: Apache-2.0
#include "sim/orders/frozen_portions.hpp"

#include <algorithm>
#include <vector>

#include "base/limits.hpp"
#include "sim/orders/fill_idle.hpp"
#include "sim/orders/list_builder.hpp"
#include "sim/orders/order_blocks.hpp"

namespace orrery::sim {
namespace {

constexpr int kPortionsPerForward = 2;
constexpr int kMostPortions = 64;

constexpr int kMostOfMean = 4;  // times as many as the mean, on a device

// Portions that stay on one device: with slices those of a micro-batch, as its activations are
// there.
int portions_together(const ScheduleParams& params) { return params.slices; }

// Of all devices, in runs of portions_together().
std::int64_t runs_of_all(const ScheduleParams& params) {
  return params.slices == 1 ? std::int64_t{params.micro_batches} * params.stages
                            : params.micro_batches;
}

std::int64_t most_runs(const ScheduleParams& params) {
  const std::int64_t stages = std::max(1, params.stages);
  return kMostOfMean * ((runs_of_all(params) + stages - 1) / stages);
}

int most_portions(const ScheduleParams& params) {
  const std::int64_t most = most_runs(params) * std::max(0, params.slices);
  return static_cast<int>(std::min<std::int64_t>(most, limits::kMaxPasses));
}

// Portions of every device: one run each, then the others to the devices where they end first.
std::vector<int> portions_by_idle_time(const std::vector<std::vector<IdleTime>>& idle,
                                       const std::vector<std::int64_t>& takes,
                                       const ScheduleParams& params) {
  const int together = portions_together(params);
  std::vector<std::vector<std::int64_t>> ends;  // of runs, by device
  std::vector<std::int64_t> others;             // of all but the first of each
  for (std::size_t d = 0; d < idle.size(); ++d) {
    ends.push_back(ends_in(idle[d], takes[d], together, most_runs(params)));
    others.insert(others.end(), ends[d].begin() + 1, ends[d].end());
  }
  std::int64_t left = runs_of_all(params) - static_cast<std::int64_t>(idle.size());
  std::vector<int> portions(idle.size(), together);
  if (left == 0) {
    return portions;
  }
  const auto last = others.begin() + left - 1;
  std::nth_element(others.begin(), last, others.end());
  const auto add = [&](std::size_t device, std::ptrdiff_t runs) {
    portions[device] += static_cast<int>(runs) * together;
    left -= runs;
  };
  for (std::size_t d = 0; d < idle.size(); ++d) {
    add(d, std::lower_bound(ends[d].begin() + 1, ends[d].end(), *last) - (ends[d].begin() + 1));
  }
  for (std::size_t d = 0; d < idle.size(); ++d) {  // of those that end then, on the first devices
    const auto [begin, end] = std::equal_range(ends[d].begin() + 1, ends[d].end(), *last);
    add(d, std::min<std::ptrdiff_t>(left, end - begin));
  }
  return portions;
}

}  // namespace

Refusal check_frozen_portions(const ScheduleParams& params) {
  ScheduleParams all = params;
  all.chunks = 2;
  all.micro_batches = std::max(params.micro_batches, most_portions(params));
  all.slices = 1;
  return first_broken({check_sizes(params), check_equal_slices(params), check_no_cap(params),
                       check_one_replica(params), check_own_iterations(params),
                       check_one_chunk(params), check_own_warm_up(params),
                       check_at_most(params.slices, kMostPortions, Size::Slices, "frozen portions"),
                       check_at_least(params.micro_batches, params.slices > 1 ? params.stages : 1,
                                      Size::MicroBatches, "each device has one to encode"),
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
  bare.parts.assign(static_cast<std::size_t>(stages), kPortionsPerForward);
  bare.parts.resize(static_cast<std::size_t>(stages + params.stages), 1);
  PipelineOrder placed = bare;
  placed.num_virtual_stages += params.stages;
  const ScheduleParams timed = with_stage_times(placed, params);
  const std::vector<std::vector<IdleTime>> idle = idle_times(backbone, timed);
  std::vector<std::int64_t> takes;
  for (int device = 0; device < params.stages; ++device) {
    takes.push_back(timed.times_of(static_cast<std::size_t>(stages + device)).forward.ps);
  }
  const std::vector<int> portions = portions_by_idle_time(idle, takes, params);
  for (const std::uint16_t device : device_run(0, params.stages)) {
    add_chain(bare, {device},
              {.units = portions[device], .role = Role::Frozen, .forward_only = true});
    bare.passes[device] = filled(backbone.passes[device], idle[device], takes[device],
                                 stages + device, portions[device]);
  }
  return bare;
}

}  // namespace orrery::sim
