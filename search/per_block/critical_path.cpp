// SPDX-License-Identifier: Apache-2.0
#include "search/per_block/critical_path.hpp"

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

bool gives_gradients(const sim::Pass& pass) {
  return pass.kind == PassKind::Backward || pass.kind == PassKind::WeightGrad;
}

class Tracer {
 public:
  Tracer(const sim::PipelineOrder& order, const sim::PipelineCosts& costs,
         const sim::PipelineResult& result)
      : order_(order),
        costs_(costs),
        spans_(result.spans),
        stages_(static_cast<std::size_t>(order.num_virtual_stages)),
        units_(static_cast<std::size_t>(order.micro_batches)),
        forward_(stages_ * units_),
        gradient_(stages_ * units_),
        first_(stages_),
        final_(stages_),
        begins_(stages_, false),
        ends_(stages_, false) {
    std::vector<bool> started(stages_, false);
    for (const sim::Chain& chain : sim::chains_of(order)) {
      begins_[static_cast<std::size_t>(chain.first)] = true;
      ends_[static_cast<std::size_t>(chain.first + chain.stages - 1)] = true;
    }
    for (std::size_t device = 0; device < spans_.size(); ++device) {
      for (std::size_t at = 0; at < spans_[device].size(); ++at) {
        const sim::Pass& pass = spans_[device][at].pass;
        if (gives_gradients(pass)) {
          final_[pass.virtual_stage] = {device, at};
        }
        if (pass.kind == PassKind::Forward) {
          forward_[slot(pass.virtual_stage, pass.micro_batch)] = {device, at};
          if (!started[pass.virtual_stage]) {
            started[pass.virtual_stage] = true;
            first_[pass.virtual_stage] = {device, at};
          }
        } else if (pass.kind != PassKind::WeightGrad) {
          gradient_[slot(pass.virtual_stage, pass.micro_batch)] = {device, at};
        }
      }
    }
  }

  PassPath trace(const std::vector<SimTime>& behind) {
    PassPath path;
    path.firsts.assign(stages_, false);
    path.finals.assign(stages_, false);
    path.forwards.assign(stages_, 0.0);
    path.backwards = path.input_grads = path.weight_grads = path.sends = path.forwards;
    const Place end = last(behind);
    path.last_stage = span(end).pass.virtual_stage;
    path.ends_stage = is_final(end);
    Place here = first_of_block(end);
    path.seconds = to_seconds(result_at(here)).value();
    while (true) {
      count_block(here, path);
      if (span(here).start == SimTime{}) {
        return path;
      }
      here = first_of_block(before(here, path));
    }
  }

 private:
  std::size_t slot(std::size_t stage, std::size_t unit) const { return stage * units_ + unit; }
  const sim::PassSpan& span(Place place) const { return spans_[place.device][place.at]; }
  bool is_joined(std::size_t device, std::size_t at) const {
    return order_.passes[device][at].joined && at + 1 < order_.passes[device].size();
  }
  // Joined passes start together and their results leave together.
  Place first_of_block(Place place) const {
    while (place.at > 0 && is_joined(place.device, place.at - 1)) {
      --place.at;
    }
    return place;
  }
  SimTime result_at(Place place) const {
    while (is_joined(place.device, place.at)) {
      ++place.at;
    }
    return span(place).end;
  }

  bool is_final(Place place) const {
    const Place end = final_[span(place).pass.virtual_stage];
    return gives_gradients(span(place).pass) && end.device == place.device && end.at == place.at;
  }

  Place last(const std::vector<SimTime>& behind) const {
    Place best;
    SimTime most;
    bool found = false;
    const auto consider = [&](Place place) {
      const bool adds = is_final(place) && !behind.empty();
      const SimTime end =
          span(place).end + (adds ? behind[span(place).pass.virtual_stage] : SimTime{});
      if (!found || end > most) {
        best = place;
        most = end;
        found = true;
      }
    };
    for (std::size_t device = 0; device < spans_.size(); ++device) {
      if (!spans_[device].empty()) {
        consider({device, spans_[device].size() - 1});
      }
    }
    for (const Place place : final_) {
      // One inside a block of joined passes is left out.
      if (!behind.empty() && is_final(place) && !is_joined(place.device, place.at)) {
        consider(place);
      }
    }
    return best;
  }

  void count_block(Place place, PassPath& path) const {
    for (bool more = true; more; ++place.at) {
      const sim::Pass& pass = span(place).pass;
      std::vector<double>& counts = pass.kind == PassKind::Forward     ? path.forwards
                                    : pass.kind == PassKind::Backward  ? path.backwards
                                    : pass.kind == PassKind::InputGrad ? path.input_grads
                                                                       : path.weight_grads;
      counts[pass.virtual_stage] += 1;
      const Place first = first_[pass.virtual_stage];
      if (first.device == place.device && first.at == place.at) {
        path.firsts[pass.virtual_stage] = true;
      }
      if (is_final(place)) {
        path.finals[pass.virtual_stage] = true;
      }
      more = is_joined(place.device, place.at);
    }
  }

  // What a block waited for: the input that arrives when it starts, else what ran before it.
  Place before(Place here, PassPath& path) const {
    const SimTime start = span(here).start;
    for (Place place = here;; ++place.at) {
      const sim::Pass& pass = span(place).pass;
      const std::size_t stage = pass.virtual_stage;
      const bool forward = pass.kind == PassKind::Forward;
      const bool has_input = pass.kind != PassKind::WeightGrad && !(forward && begins_[stage]);
      if (has_input) {
        const bool turns = !forward && ends_[stage];
        const std::size_t from = forward ? stage - 1 : turns ? stage : stage + 1;
        const Place input = (forward || turns ? forward_ : gradient_)[slot(from, pass.micro_batch)];
        const SimTime send = turns     ? SimTime{}
                             : forward ? costs_.send_forward[from]
                                       : costs_.send_backward[stage];
        if (result_at(input) + send == start) {
          path.sends[forward ? from : stage] += turns ? 0 : 1;
          return input;
        }
      }
      if (!is_joined(place.device, place.at)) {
        break;
      }
    }
    ORRERY_CHECK(here.at > 0 && spans_[here.device][here.at - 1].end == start,
                 "a pass starts when its device is free and its input is there");
    return {here.device, here.at - 1};
  }

  const sim::PipelineOrder& order_;
  const sim::PipelineCosts& costs_;
  const std::vector<std::vector<sim::PassSpan>>& spans_;
  std::size_t stages_;
  std::size_t units_;
  std::vector<Place> forward_;
  std::vector<Place> gradient_;
  std::vector<Place> first_;  // forward of a virtual stage
  std::vector<Place> final_;  // pass that gives it gradients
  std::vector<bool> begins_;  // virtual stages at the ends of their chains
  std::vector<bool> ends_;
};

}  // namespace

PassPath longest_path(const sim::PipelineOrder& order, const sim::PipelineCosts& costs,
                      const std::vector<SimTime>& behind) {
  ORRERY_CHECK(order.edges.empty() && order.slices == 1, "chains of whole micro-batches");
  const sim::PipelineResult result =
      sim::evaluate_pipeline(order, costs, {.steady_state = false, .record_spans = true});
  return Tracer(order, costs, result).trace(behind);
}

std::vector<std::vector<std::size_t>> reduced_later(const sim::PipelineOrder& order) {
  std::vector<std::vector<std::size_t>> later(static_cast<std::size_t>(order.num_virtual_stages));
  for (const std::vector<sim::Pass>& list : order.passes) {
    std::vector<std::size_t> behind;  // last first
    for (auto pass = list.rbegin(); pass != list.rend(); ++pass) {
      const std::size_t stage = pass->virtual_stage;
      if (gives_gradients(*pass) &&
          std::find(behind.begin(), behind.end(), stage) == behind.end()) {
        later[stage] = behind;
        behind.push_back(stage);
      }
    }
  }
  return later;
}

}  // namespace orrery::search
