// SPDX-License-Identifier: Apache-2.0
#include "sim/pipeline/pipeline_path.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>

#include "base/error.hpp"
#include "sim/pipeline/pass_inputs.hpp"

namespace orrery::sim {
namespace {

struct Place {
  std::uint32_t device = 0;
  std::uint32_t index = std::numeric_limits<std::uint32_t>::max();  // none
  bool exists() const { return index != std::numeric_limits<std::uint32_t>::max(); }
};

class Walk {
 public:
  Walk(const PipelineOrder& order, const PipelineResult& result)
      : spans_(result.spans),
        inputs_(order),
        stages_(static_cast<std::size_t>(order.num_virtual_stages)),
        units_(static_cast<std::size_t>(order.micro_batches)),
        places_(kNumLanes * stages_ * units_) {
    for (std::uint32_t device = 0; device < spans_.size(); ++device) {
      for (std::uint32_t index = 0; index < spans_[device].size(); ++index) {
        const Pass& pass = spans_[device][index].pass;
        places_[slot(lane_of(pass.kind), pass.virtual_stage, pass.micro_batch)] = {device, index};
      }
    }
  }

  PipelinePath run() const {
    PipelinePath path;
    path.on_device.resize(spans_.size());
    std::optional<Place> place = last();
    while (place) {
      const PassSpan& span = at(*place);
      path.on_device[place->device] += span.end - span.start;
      place = released_by(*place);
      path.transfers += place ? span.start - at(*place).end : span.start;
    }
    return path;
  }

 private:
  std::size_t slot(Lane lane, std::size_t stage, std::size_t unit) const {
    return (static_cast<std::size_t>(lane) * stages_ + stage) * units_ + unit;
  }
  const PassSpan& at(const Place& place) const { return spans_[place.device][place.index]; }

  // The last pass of the block that it is in, at whose end the results of all leave.
  Place end_of_block(Place place) const {
    while (at(place).pass.joined && place.index + 1 < spans_[place.device].size()) {
      ++place.index;
    }
    return place;
  }

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

  // The pass before on the device when it ends as this one starts, else the input of its block that
  // leaves last before it starts.
  std::optional<Place> released_by(const Place& place) const {
    const SimTime start = at(place).start;
    std::optional<Place> before;
    if (place.index > 0) {
      before = Place{place.device, place.index - 1};
      if (at(*before).end == start) {
        return before;
      }
    }
    std::optional<Place> input;
    const std::uint32_t last = end_of_block(place).index;
    for (Place waiting = place; waiting.index <= last; ++waiting.index) {
      inputs_.for_each(at(waiting).pass, [&](const PassInput& awaited) {
        const Place source = places_[slot(awaited.lane, awaited.virtual_stage, awaited.unit)];
        if (!source.exists()) {
          return;
        }
        const Place from = end_of_block(source);
        if (at(from).end <= start && (!input || at(from).end > at(*input).end)) {
          input = from;
        }
      });
    }
    return input ? input : before;
  }

  const std::vector<std::vector<PassSpan>>& spans_;
  PassInputs inputs_;
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

PipelinePath pipeline_path(const PipelineOrder& order, const PipelineResult& result) {
  ORRERY_CHECK(result.spans.size() == order.passes.size(), "evaluate with record_spans");
  return Walk(order, result).run();
}

}  // namespace orrery::sim
