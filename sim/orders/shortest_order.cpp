// SPDX-License-Identifier: Apache-2.0
#include "sim/orders/shortest_order.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "sim/orders/order_bound.hpp"

namespace orrery::sim {
namespace {

// Lists of one chain, run as far as a device can before another one goes on. What a pass needs of
// its own device is before it in the list, so that only virtual stages beside its own are waited
// for.
class PlainSweep {
 public:
  PlainSweep(const PipelineOrder& order, const ScheduleParams& params)
      : order_(order),
        units_(static_cast<std::size_t>(order.micro_batches)),
        stages_(static_cast<std::size_t>(order.num_virtual_stages)),
        end_((2 * stages_ + 1) * units_, -1),
        blocked_on_(order.passes.size(), kNothing),
        position_(order.passes.size(), 0),
        free_(order.passes.size(), 0) {
    std::fill(end_.end() - static_cast<std::ptrdiff_t>(units_), end_.end(), 0);
    for (std::size_t s = 0; s < stages_; ++s) {
      const PassTimes& times = params.times_of(s);
      const bool last = s + 1 == stages_;
      rows_.push_back({.own = row(s),
                       .input = s == 0 ? row(2 * stages_) : row(s - 1),
                       .send = s == 0 ? 0 : send(params, s - 1),
                       .to = order.device_of[last ? s : s + 1]});
      rows_.push_back({.own = row(stages_ + s),
                       .input = last ? row(2 * stages_) : row(stages_ + s + 1),
                       .send = last ? 0 : send(params, s),
                       .to = order.device_of[s == 0 ? s : s - 1]});
      durations_.push_back(
          {times.forward.ps, times.input_grad.ps, times.weight_grad.ps, times.backward().ps});
    }
  }

  // `limit` where it is no less; `idle_within`: what that leaves each device to idle.
  SimTime makespan(SimTime limit, std::vector<std::int64_t> idle_within) {
    std::vector<std::size_t> open(free_.size());
    std::iota(open.rbegin(), open.rend(), std::size_t{0});
    while (!open.empty()) {
      const std::size_t device = open.back();
      open.pop_back();
      if (!run(device, idle_within[device], open)) {
        return limit;
      }
    }
    for (std::size_t d = 0; d < free_.size(); ++d) {
      ORRERY_CHECK(position_[d] == order_.passes[d].size(), "lists that deadlock");
    }
    return std::min(limit, SimTime{*std::max_element(free_.begin(), free_.end())});
  }

 private:
  static constexpr std::size_t kNothing = std::numeric_limits<std::size_t>::max();
  struct Row {  // of forwards or gradients of a virtual stage, in end_
    std::size_t own = 0;
    std::size_t input = 0;  // those waited for
    std::int64_t send = 0;
    std::size_t to = 0;  // the device that waits for these
  };

  std::size_t row(std::size_t number) const { return number * units_; }
  std::int64_t send(const ScheduleParams& params, std::size_t s) const {
    return order_.device_of[s] == order_.device_of[s + 1] ? 0 : params.times_of(s).send.ps;
  }

  // Until its next pass has to wait for one that has not run; false when it idles too long.
  bool run(std::size_t device, std::int64_t& idle_within, std::vector<std::size_t>& open) {
    const std::vector<Pass>& list = order_.passes[device];
    std::int64_t free = free_[device];
    std::size_t at = position_[device];
    for (; at < list.size(); ++at) {
      const Pass& pass = list[at];
      const std::int64_t duration =
          durations_[pass.virtual_stage][static_cast<std::size_t>(pass.kind)];
      if (pass.kind == PassKind::WeightGrad) {
        free += duration;
        continue;
      }
      const Row& row =
          rows_[2 * std::size_t{pass.virtual_stage} + (pass.kind == PassKind::Forward ? 0U : 1U)];
      const std::int64_t input = end_[row.input + pass.micro_batch];
      if (input < 0) {
        blocked_on_[device] = row.input + pass.micro_batch;
        break;
      }
      const std::int64_t idle = std::max<std::int64_t>(input + row.send - free, 0);
      idle_within -= idle;
      free += idle + duration;
      end_[row.own + pass.micro_batch] = free;
      if (blocked_on_[row.to] == row.own + pass.micro_batch) {
        blocked_on_[row.to] = kNothing;
        open.push_back(row.to);
      }
    }
    position_[device] = at;
    free_[device] = free;
    return idle_within > 0;
  }

  const PipelineOrder& order_;
  std::size_t units_;
  std::size_t stages_;
  std::vector<Row> rows_;  // by virtual stage, of its forwards and of its gradients
  std::vector<std::array<std::int64_t, 4>> durations_;  // by virtual stage and kind
  std::vector<std::int64_t> end_;                       // negative: has not run; then of nothing
  std::vector<std::size_t> blocked_on_;                 // by device, an index of end_
  std::vector<std::size_t> position_;
  std::vector<std::int64_t> free_;
};

// Activations that a device holds at most: until the weight gradient, where that is cut.
std::int64_t peak_of(const std::vector<Pass>& list) {
  std::int64_t live = 0;
  std::int64_t peak = 0;
  for (const Pass& pass : list) {
    live += pass.kind == PassKind::Forward ? 1 : pass.kind == PassKind::InputGrad ? 0 : -1;
    peak = std::max(peak, live);
  }
  return peak;
}

}  // namespace

void ShortestOrder::offer(PipelineOrder order) {
  ORRERY_CHECK(order.is_plain(), "orders of one chain are compared");
  const double pieces = order.num_virtual_stages / static_cast<double>(order.passes.size());
  for (const std::vector<Pass>& list : order.passes) {
    if (static_cast<double>(peak_of(list)) / pieces > cap_) {
      return;
    }
  }
  const SimTime limit = params_.decides_all ? SimTime::max() : shortest_;
  const bool cuts = std::any_of(order.passes.front().begin(), order.passes.front().end(),
                                [](const Pass& pass) { return pass.kind == PassKind::WeightGrad; });
  const OrderBound bound(order.device_of, params_, cuts);
  const SimTime makespan = PlainSweep(order, params_).makespan(limit, bound.idle_within(limit));
  if (makespan < shortest_) {
    shortest_ = makespan;
    best_ = std::move(order);
  }
}

PipelineOrder ShortestOrder::take(std::string_view where) {
  if (!best_) {
    bad_input(
        where,
        fmt::format("no order that it tries keeps within {:g} micro-batches of activations", cap_),
        "raise the cap, or even out the activations of the stages");
  }
  return *std::move(best_);
}

}  // namespace orrery::sim
