// SPDX-License-Identifier: Apache-2.0
#include "search/critical_path.hpp"

#include <algorithm>
#include <cstddef>

#include "base/error.hpp"

namespace orrery::search {

namespace {

using sim::PassKind;

struct Place {
  std::size_t device = 0;
  std::size_t at = 0;
};

class Tracer {
 public:
  Tracer(const sim::PipelineOrder& order, const sim::PipelineCosts& costs,
         const sim::PipelineResult& result)
      : costs_(costs), spans_(result.spans), stages_(static_cast<std::size_t>(order.num_virtual_stages)) {
    const std::size_t units = static_cast<std::size_t>(order.micro_batches);
    forward_.resize(stages_ * units);
    gradient_.resize(stages_ * units);
    units_ = units;
    for (std::size_t device = 0; device < spans_.size(); ++device) {
      for (std::size_t at = 0; at < spans_[device].size(); ++at) {
        const sim::Pass& pass = spans_[device][at].pass;
        if (pass.kind == PassKind::Forward) {
          forward_[slot(pass.virtual_stage, pass.micro_batch)] = {device, at};
        } else if (pass.kind != PassKind::WeightGrad) {
          gradient_[slot(pass.virtual_stage, pass.micro_batch)] = {device, at};
        }
      }
    }
  }

  PassPath trace() {
    PassPath path;
    path.forwards.assign(stages_, 0.0);
    path.backwards = path.input_grads = path.weight_grads = path.forwards;
    Place here = last();
    path.seconds = to_seconds(span(here).end).value();
    while (true) {
      const sim::PassSpan& now = span(here);
      count(now.pass, path);
      if (now.start == SimTime{}) {
        return path;
      }
      here = before(here, path);
    }
  }

 private:
  std::size_t slot(std::size_t stage, std::size_t unit) const { return stage * units_ + unit; }
  const sim::PassSpan& span(Place place) const { return spans_[place.device][place.at]; }

  Place last() const {
    Place best;
    bool found = false;
    for (std::size_t device = 0; device < spans_.size(); ++device) {
      if (!spans_[device].empty() &&
          (!found || spans_[device].back().end > span(best).end)) {
        best = {device, spans_[device].size() - 1};
        found = true;
      }
    }
    return best;
  }

  static void count(const sim::Pass& pass, PassPath& path) {
    std::vector<double>& counts = pass.kind == PassKind::Forward      ? path.forwards
                                  : pass.kind == PassKind::Backward   ? path.backwards
                                  : pass.kind == PassKind::InputGrad  ? path.input_grads
                                                                      : path.weight_grads;
    counts[pass.virtual_stage] += 1;
  }

  // What the pass waited for: its input if that came last, else the pass before it on the device.
  Place before(Place here, PassPath& path) const {
    const sim::PassSpan& now = span(here);
    const std::size_t stage = now.pass.virtual_stage;
    const std::size_t unit = now.pass.micro_batch;
    if (now.pass.kind == PassKind::Forward && stage > 0) {
      const Place input = forward_[slot(stage - 1, unit)];
      if (span(input).end + costs_.send_forward[stage - 1] == now.start) {
        path.sends += to_seconds(costs_.send_forward[stage - 1]).value();
        return input;
      }
    } else if (now.pass.kind != PassKind::Forward && now.pass.kind != PassKind::WeightGrad) {
      const bool turns = stage + 1 == stages_;
      const Place input = turns ? forward_[slot(stage, unit)] : gradient_[slot(stage + 1, unit)];
      const SimTime send = turns ? SimTime{} : costs_.send_backward[stage];
      if (span(input).end + send == now.start) {
        path.sends += to_seconds(send).value();
        return input;
      }
    }
    ORRERY_CHECK(here.at > 0 && spans_[here.device][here.at - 1].end == now.start,
                 "a pass starts when its device is free and its input is there");
    return {here.device, here.at - 1};
  }

  const sim::PipelineCosts& costs_;
  const std::vector<std::vector<sim::PassSpan>>& spans_;
  std::size_t stages_;
  std::size_t units_ = 0;
  std::vector<Place> forward_;
  std::vector<Place> gradient_;
};

}  // namespace

PassPath longest_path(const sim::PipelineOrder& order, const sim::PipelineCosts& costs) {
  ORRERY_CHECK(order.is_plain(), "paths are traced through plain orders");
  const sim::PipelineResult result =
      sim::evaluate_pipeline(order, costs, {.steady_state = false, .record_spans = true});
  return Tracer(order, costs, result).trace();
}

}  // namespace orrery::search
