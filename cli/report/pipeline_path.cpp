// SPDX-License-Identifier: Apache-2.0
#include "cli/report/pipeline_path.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>

#include "base/error.hpp"
#include "plan/stage/validated_pace.hpp"
#include "sim/pipeline/pass_inputs.hpp"

namespace orrery::cli {
namespace {

struct Place {
  std::uint32_t device = 0;
  std::uint32_t index = std::numeric_limits<std::uint32_t>::max();  // none
  bool exists() const { return index != std::numeric_limits<std::uint32_t>::max(); }
};

class Walk {
 public:
  Walk(const sim::PipelineOrder& order, const sim::PipelineResult& result)
      : spans_(result.spans),
        inputs_(order),
        stages_(static_cast<std::size_t>(order.num_virtual_stages)),
        units_(static_cast<std::size_t>(order.micro_batches)),
        places_(sim::kNumLanes * stages_ * units_) {
    for (std::uint32_t device = 0; device < spans_.size(); ++device) {
      for (std::uint32_t index = 0; index < spans_[device].size(); ++index) {
        const sim::Pass& pass = spans_[device][index].pass;
        places_[slot(sim::lane_of(pass.kind), pass.virtual_stage, pass.micro_batch)] = {device,
                                                                                        index};
      }
    }
  }

  PipelinePath run() const {
    PipelinePath path;
    path.on_device.resize(spans_.size());
    std::optional<Place> place = last();
    while (place) {
      const sim::PassSpan& span = at(*place);
      path.on_device[place->device] += span.end - span.start;
      place = released_by(*place);
      path.transfers += place ? span.start - at(*place).end : span.start;
    }
    return path;
  }

 private:
  std::size_t slot(sim::Lane lane, std::size_t stage, std::size_t unit) const {
    return (static_cast<std::size_t>(lane) * stages_ + stage) * units_ + unit;
  }
  const sim::PassSpan& at(const Place& place) const { return spans_[place.device][place.index]; }

  std::optional<Place> last() const {
    std::optional<Place> found;
    for (std::uint32_t device = 0; device < spans_.size(); ++device) {
      if (!spans_[device].empty()) {
        const Place end{device, static_cast<std::uint32_t>(spans_[device].size() - 1)};
        if (!found || at(end).end > at(*found).end) {
          found = end;
        }
      }
    }
    return found;
  }

  // The pass before on the device when it ends as this one starts, else the input that ends last
  // before it starts.
  std::optional<Place> released_by(const Place& place) const {
    const sim::PassSpan& span = at(place);
    std::optional<Place> before;
    if (place.index > 0) {
      before = Place{place.device, place.index - 1};
      if (at(*before).end == span.start) {
        return before;
      }
    }
    std::optional<Place> input;
    inputs_.for_each(span.pass, [&](const sim::PassInput& awaited) {
      const Place from = places_[slot(awaited.lane, awaited.virtual_stage, awaited.unit)];
      if (from.exists() && at(from).end <= span.start &&
          (!input || at(from).end > at(*input).end)) {
        input = from;
      }
    });
    return input ? input : before;
  }

  const std::vector<std::vector<sim::PassSpan>>& spans_;
  sim::PassInputs inputs_;
  std::size_t stages_;
  std::size_t units_;
  std::vector<Place> places_;
};

}  // namespace

SimTime PipelinePath::total() const {
  SimTime sum = transfers;
  for (const SimTime time : on_device) {
    sum += time;
  }
  return sum;
}

bool has_path(const plan::Plan& plan, const plan::Simulation& simulation) {
  return simulation.synchronous && !simulation.pipeline.spans.empty() &&
         !plan::validates_afterwards(plan);
}

PipelinePath pipeline_path(const sim::PipelineOrder& order, const sim::PipelineResult& result) {
  ORRERY_CHECK(result.spans.size() == result.devices.size(), "evaluate with record_spans");
  return Walk(order, result).run();
}

}  // namespace orrery::cli
