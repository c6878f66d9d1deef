// SPDX-License-Identifier: Apache-2.0
#include "sim/orders/frozen_portions.hpp"

#include <algorithm>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "base/limits.hpp"
#include "sim/orders/fill_idle.hpp"
#include "sim/orders/list_builder.hpp"
#include "sim/orders/order_blocks.hpp"
#include "sim/pipeline/share_costs.hpp"

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

// Where the portions of a device end, one after the other, in its idle times and then behind them.
class PortionEnds {
 public:
  PortionEnds(const std::vector<PassSpan>& spans, SimTime takes) : spans_(spans), takes_(takes) {}

  SimTime after(int portions) {
    for (; portions > 0; --portions) {
      while (at_ < spans_.size() && spans_[at_].start - free_ < takes_) {
        free_ = spans_[at_++].end;
      }
      free_ += takes_;
    }
    return free_;
  }

 private:
  const std::vector<PassSpan>& spans_;
  SimTime takes_;
  std::size_t at_ = 0;
  SimTime free_;
};

// Portions of every device: one run each, then the others to the device where they end first.
std::vector<int> portions_by_idle_time(const PipelineOrder& backbone, const ScheduleParams& params,
                                       const ScheduleParams& timed) {
  const int together = portions_together(params);
  const PipelineResult result =
      evaluate_pipeline(backbone, stage_costs(backbone, timed), {.record_spans = true});
  const auto stages = static_cast<std::size_t>(backbone.num_virtual_stages);
  using Next = std::pair<SimTime, std::size_t>;  // the end of its next run, and the device
  std::priority_queue<Next, std::vector<Next>, std::greater<>> queue;
  std::vector<PortionEnds> ends;
  const std::size_t devices = backbone.passes.size();
  for (std::size_t d = 0; d < devices; ++d) {
    ends.emplace_back(result.spans[d], timed.times_of(stages + d).forward);
    ends[d].after(together);
    queue.emplace(ends[d].after(together), d);
  }
  std::vector<int> runs(devices, 1);
  const std::int64_t most = most_runs(params);
  for (std::int64_t left = runs_of_all(params) - static_cast<std::int64_t>(devices); left > 0;) {
    const std::size_t device = queue.top().second;
    queue.pop();
    if (runs[device] < most) {
      ++runs[device];
      --left;
      queue.emplace(ends[device].after(together), device);
    }
  }
  for (int& count : runs) {
    count *= together;
  }
  return runs;
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
  bare.parts.assign(static_cast<std::size_t>(stages), kPortionsPerForward);
  bare.parts.resize(static_cast<std::size_t>(stages + params.stages), 1);
  PipelineOrder placed = bare;
  placed.num_virtual_stages += params.stages;
  const ScheduleParams timed = with_stage_times(placed, params);
  const std::vector<int> portions = portions_by_idle_time(backbone, params, timed);
  for (const std::uint16_t device : device_run(0, params.stages)) {
    add_chain(bare, {device},
              {.units = portions[device], .role = Role::Frozen, .forward_only = true});
  }
  return fill_idle(std::move(bare), timed, backbone, stages);
}

}  // namespace orrery::sim
