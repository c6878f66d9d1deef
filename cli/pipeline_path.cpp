// SPDX-License-Identifier: Apache-2.0
#include "cli/pipeline_path.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>

#include "base/error.hpp"

namespace orrery::cli {
namespace {

using sim::PassKind;

struct Place {
  std::uint32_t device = 0;
  std::uint32_t index = std::numeric_limits<std::uint32_t>::max();  // none
  bool exists() const { return index != std::numeric_limits<std::uint32_t>::max(); }
};

class Walk {
 public:
  explicit Walk(const sim::PipelineResult& result) : spans_(result.spans) {
    for (const std::vector<sim::PassSpan>& spans : spans_) {
      for (const sim::PassSpan& span : spans) {
        stages_ = std::max<std::size_t>(stages_, span.pass.virtual_stage + 1U);
        micro_batches_ = std::max<std::size_t>(micro_batches_, span.pass.micro_batch + 1U);
      }
    }
    places_.resize(2 * stages_ * micro_batches_);
    for (std::uint32_t device = 0; device < spans_.size(); ++device) {
      for (std::uint32_t index = 0; index < spans_[device].size(); ++index) {
        const sim::Pass& pass = spans_[device][index].pass;
        if (pass.kind != PassKind::WeightGrad) {
          const bool forward = pass.kind == PassKind::Forward;
          places_[slot(forward, pass.virtual_stage, pass.micro_batch)] = {device, index};
        }
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
  std::size_t slot(bool forward, std::size_t stage, std::size_t micro_batch) const {
    return ((forward ? stages_ : 0) + stage) * micro_batches_ + micro_batch;
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

  // The pass before on the device when it ends as this one starts, else the awaited input.
  std::optional<Place> released_by(const Place& place) const {
    const sim::PassSpan& span = at(place);
    std::optional<Place> before;
    if (place.index > 0) {
      before = Place{place.device, place.index - 1};
      if (at(*before).end == span.start) {
        return before;
      }
    }
    const Place input = input_of(span.pass);
    return input.exists() ? std::optional(input) : before;
  }

  Place input_of(const sim::Pass& pass) const {
    const std::size_t stage = pass.virtual_stage;
    if (pass.kind == PassKind::WeightGrad) {
      return places_[slot(false, stage, pass.micro_batch)];
    }
    if (pass.kind == PassKind::Forward) {
      return stage == 0 ? Place() : places_[slot(true, stage - 1, pass.micro_batch)];
    }
    const bool is_last = stage + 1 == stages_;
    return places_[slot(is_last, is_last ? stage : stage + 1, pass.micro_batch)];
  }

  const std::vector<std::vector<sim::PassSpan>>& spans_;
  std::size_t stages_ = 0;
  std::size_t micro_batches_ = 0;
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

PipelinePath pipeline_path(const sim::PipelineResult& result) {
  ORRERY_CHECK(result.spans.size() == result.devices.size(), "evaluate with record_spans");
  return Walk(result).run();
}

}  // namespace orrery::cli
