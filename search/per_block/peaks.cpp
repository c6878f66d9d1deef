// SPDX-License-Identifier: Apache-2.0
#include "search/per_block/peaks.hpp"

#include <algorithm>
#include <limits>

namespace orrery::search {

namespace {

using sim::PassKind;

PassPath empty_path(std::size_t stages) {
  PassPath path;
  path.forwards.assign(stages, 0.0);
  path.backwards = path.input_grads = path.weight_grads = path.sends = path.forwards;
  path.firsts.assign(stages, false);
  path.finals.assign(stages, false);
  return path;
}

bool gives_result(const sim::Pass& pass) {
  return pass.kind == PassKind::InputGrad || pass.kind == PassKind::Backward;
}

// Of the first stages, one entry more than there are.
std::vector<double> sums(const std::vector<double>& passes, const std::vector<double>& sends) {
  std::vector<double> result(1, 0.0);
  for (std::size_t stage = 0; stage < passes.size(); ++stage) {
    result.push_back(result.back() + passes[stage] + sends[stage]);
  }
  return result;
}

}  // namespace

PeakPaths::PeakPaths(const sim::PipelineOrder& order)
    : order_(&order),
      stages_(static_cast<std::size_t>(order.num_virtual_stages)),
      units_(static_cast<std::size_t>(order.micro_batches)),
      forward_(stages_),
      gradient_(stages_),
      weight_grad_(stages_),
      last_(empty_path(stages_)) {
  if (!order.is_plain()) {
    return;
  }
  for (const std::vector<sim::Pass>& list : order.passes) {
    for (std::size_t at = 0; at < list.size(); ++at) {
      const sim::Pass& pass = list[at];
      const bool cut = pass.kind == PassKind::WeightGrad;
      Places& lanes = pass.kind == PassKind::Forward ? forward_ : cut ? weight_grad_ : gradient_;
      std::vector<std::size_t>& places = lanes[pass.virtual_stage];
      if (pass.kind > PassKind::Backward || (!cut && pass.micro_batch != places.size())) {
        return;
      }
      splits_ = splits_ || cut;
      places.push_back(at);
    }
  }
  known_ = std::all_of(forward_.begin(), forward_.end(),
                       [&](const auto& places) { return places.size() == units_; }) &&
           std::all_of(gradient_.begin(), gradient_.end(),
                       [&](const auto& places) { return places.size() == units_; });
  if (!known_) {
    return;
  }
  const std::vector<sim::Pass>& list = order.passes[order.device_of[0]];
  for (std::size_t at = gradient_[0].back() + 1; at < list.size(); ++at) {
    count(list[at], last_);
  }
  last_.last_stage = list.back().virtual_stage;
  last_.ends_stage =
      list.back().kind == PassKind::Backward || list.back().kind == PassKind::WeightGrad;
  last_.finals[last_.last_stage] = last_.ends_stage;
}

void PeakPaths::count(const sim::Pass& pass, PassPath& path) const {
  (pass.kind == PassKind::Forward      ? path.forwards
   : pass.kind == PassKind::WeightGrad ? path.weight_grads
   : pass.kind == PassKind::InputGrad  ? path.input_grads
                                       : path.backwards)[pass.virtual_stage] += 1;
}

int PeakPaths::weight_grads_between(std::size_t stage, std::size_t begin, std::size_t end) const {
  const std::vector<std::size_t>& places = weight_grad_[stage];
  return static_cast<int>(std::lower_bound(places.begin(), places.end(), end) -
                          std::lower_bound(places.begin(), places.end(), begin));
}

std::vector<int> PeakPaths::weight_grads_after(const std::vector<std::size_t>& stages) const {
  std::vector<int> fewest(units_, splits_ ? std::numeric_limits<int>::max() : 0);
  for (const std::size_t stage : splits_ ? stages : std::vector<std::size_t>()) {
    for (std::size_t unit = 0; unit < units_; ++unit) {
      const std::vector<std::size_t>& places = gradient_[stage];
      fewest[unit] =
          std::min(fewest[unit], weight_grads_between(stage, places[unit], places.back()));
    }
  }
  return fewest;
}

// The longest: where to leave for the run, and where it ends, add up.
std::optional<PeakPaths::Run> PeakPaths::run_of(std::size_t device, std::size_t last,
                                                const PeakTimes& times,
                                                const std::vector<int>& weight_grads) const {
  const std::vector<double> forward = sums(times.forward, times.send);
  const std::vector<double> gradient = sums(times.gradient, times.send);
  const std::vector<sim::Pass>& list = order_->passes[device];
  std::optional<Run> best;
  std::optional<Run> begun;
  double done = 0;  // passes of the list so far
  for (std::size_t at = 0; at < list.size(); ++at) {
    const sim::Pass& pass = list[at];
    const std::size_t stage = pass.virtual_stage;
    const double unit = pass.micro_batch;
    if (gives_result(pass) && stage >= last && begun) {
      const double length = begun->length + done + gradient[stage + 1] +
                            times.own_gradient * (static_cast<double>(units_) - 1.0 - unit) +
                            times.own_weight_grad * weight_grads[pass.micro_batch];
      if (!best || length > best->length) {
        best = Run{length, device, begun->begin, at, begun->back};
      }
    }
    done += (pass.kind == PassKind::Forward      ? times.forward
             : pass.kind == PassKind::WeightGrad ? times.weight_grad
                                                 : times.gradient)[stage];
    const bool back = gives_result(pass);
    if (pass.kind == PassKind::Forward ? stage >= last : back) {
      const double until = pass.kind == PassKind::Forward
                               ? forward[stage + 1]
                               : forward.back() + gradient.back() - gradient[stage];
      const double length = until + times.own_forward * unit - done;
      if (!begun || length > begun->length) {
        begun = Run{length, device, at, at, back};
      }
    }
  }
  return best;
}

PeakPath PeakPaths::path_of(const Run& run, int weight_grads) const {
  const std::vector<sim::Pass>& list = order_->passes[run.device];
  const sim::Pass& from = list[run.begin];
  const sim::Pass& to = list[run.end];
  PeakPath path{last_, static_cast<double>(from.micro_batch),
                static_cast<double>(units_ - 1 - to.micro_batch),
                static_cast<double>(weight_grads)};
  std::vector<double>& gradients = splits_ ? path.common.input_grads : path.common.backwards;
  const auto pass = [&](std::vector<double>& counts, std::size_t begin, std::size_t end) {
    for (std::size_t stage = begin; stage < end; ++stage) {
      counts[stage] += 1;
      path.common.sends[stage] += stage + 1 < end ? 1 : 0;
    }
  };
  pass(path.common.forwards, 0, run.back ? stages_ : from.virtual_stage + std::size_t{1});
  if (run.back) {
    pass(gradients, from.virtual_stage, stages_);
  }
  for (std::size_t at = run.begin + 1; at < run.end; ++at) {
    count(list[at], path.common);
  }
  pass(gradients, 0, to.virtual_stage + std::size_t{1});
  return path;
}

PeakPath PeakPaths::on_device(const std::vector<std::size_t>& stages) const {
  PeakPath path{last_, static_cast<double>(units_), static_cast<double>(units_),
                std::numeric_limits<double>::infinity()};
  std::vector<double>& gradients = splits_ ? path.common.input_grads : path.common.backwards;
  for (std::size_t stage = 0; stage < stages.front(); ++stage) {
    path.common.forwards[stage] += 1;
    gradients[stage] += 1;
    path.common.sends[stage] += 2;
  }
  for (const std::size_t stage : stages) {
    const int between =
        weight_grads_between(stage, forward_[stage].front(), gradient_[stage].back());
    path.weight_grads = std::min(path.weight_grads, static_cast<double>(between));
  }
  return path;
}

std::vector<PeakPath> PeakPaths::longest(const std::vector<std::size_t>& stages,
                                         const PeakTimes& times, std::size_t count) const {
  const std::vector<int> weight_grads = weight_grads_after(stages);
  std::vector<Run> runs;
  for (std::size_t device = 0; device < order_->passes.size(); ++device) {
    if (const auto run = run_of(device, stages.back(), times, weight_grads)) {
      runs.push_back(*run);
    }
  }
  std::stable_sort(runs.begin(), runs.end(),
                   [](const Run& one, const Run& other) { return one.length > other.length; });
  runs.resize(std::min(runs.size(), count));
  std::vector<PeakPath> paths = {on_device(stages)};
  for (const Run& run : runs) {
    const sim::Pass& to = order_->passes[run.device][run.end];
    paths.push_back(path_of(run, weight_grads[to.micro_batch]));
  }
  return paths;
}

}  // namespace orrery::search
