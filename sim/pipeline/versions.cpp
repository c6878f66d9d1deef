// SPDX-License-Identifier: Apache-2.0
#include "sim/pipeline/versions.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "base/error.hpp"
#include "sim/pipeline/pass_inputs.hpp"
#include "sim/pipeline/unit_times.hpp"

namespace orrery::sim {
namespace {

class StageVersions {
 public:
  // `at_input`: the version that every unit finds on the first stage, which fills it.
  StageVersions(Versions rule, int units_per_update, std::vector<int>& at_input)
      : rule_(rule), per_update_(units_per_update), at_input_(at_input) {}

  void run(PassKind kind, int unit) {
    if (kind == PassKind::Optimizer) {
      ++updates_;
    } else if (kind == PassKind::Forward) {
      const int own = unit / per_update_;
      const int used = version_of(unit, own);
      ORRERY_CHECK(used <= updates_, "a forward uses parameters that are not there yet");
      use_.staleness = std::max(use_.staleness, own - used);
      ++users_[used];
      in_flight_[unit] = used;
    } else if (const auto flying = in_flight_.find(unit);
               flying != in_flight_.end() && kind != PassKind::InputGrad) {
      if (--users_[flying->second] == 0) {
        users_.erase(flying->second);
      }
      in_flight_.erase(flying);
      ++finished_;
    }
    count();
  }

  VersionUseOfStage use() const { return use_; }

 private:
  int version_of(int unit, int own) {
    const auto known = static_cast<std::size_t>(unit);
    switch (rule_) {
      case Versions::Delayed:
        return std::max(own - 1, 0);
      case Versions::InputStage:
        at_input_.resize(std::max(at_input_.size(), known + 1), updates_);
        return at_input_[known];
      default:
        return updates_;
    }
  }

  void count() {
    int versions = 1;
    if (rule_ == Versions::Stashed || rule_ == Versions::Delayed) {
      versions = static_cast<int>(users_.size()) + (users_.count(updates_) == 0 ? 1 : 0);
    } else if (rule_ == Versions::Predicted) {
      versions = 2;
    } else if (rule_ == Versions::InputStage && finished_ < at_input_.size()) {
      versions = updates_ - at_input_[finished_] + 1;  // units still to come need older ones, too
    }
    use_.versions = std::max(use_.versions, versions);
  }

  Versions rule_;
  int per_update_;
  std::vector<int>& at_input_;
  int updates_ = 0;
  std::size_t finished_ = 0;      // units
  std::map<int, int> users_;      // units in flight per version
  std::map<int, int> in_flight_;  // version per unit
  VersionUseOfStage use_;
};

// The first virtual stage with the same parameters as each: itself, or the copy on its device in
// the first of the chains that share them.
std::vector<std::size_t> holders_of(const PipelineOrder& order) {
  std::vector<std::size_t> holders(static_cast<std::size_t>(order.num_virtual_stages));
  const bool shared = has_copies(order);
  std::map<std::uint16_t, std::size_t> first_on;
  for (std::size_t s = 0; s < holders.size(); ++s) {
    holders[s] = shared ? first_on.try_emplace(order.device_of[s], s).first->second : s;
  }
  return holders;
}

}  // namespace

std::vector<VersionUseOfStage> count_versions(const PipelineOrder& order) {
  std::vector<VersionUseOfStage> result(static_cast<std::size_t>(order.num_virtual_stages));
  const std::vector<std::size_t> holder = holders_of(order);
  std::vector<int> updates(result.size(), 0);
  for (const auto& list : order.passes) {
    for (const Pass& pass : list) {
      updates[holder[pass.virtual_stage]] += pass.kind == PassKind::Optimizer ? 1 : 0;
    }
  }
  const PassInputs inputs(order);
  const int stride = order.chains.empty() ? 1 : order.chains.front().stride;
  std::vector<int> at_input;
  std::vector<StageVersions> stages;
  for (std::size_t s = 0; s < result.size(); ++s) {
    const int units = static_cast<int>(inputs.units(s)) * stride;
    stages.emplace_back(order.versions, std::max(1, units / std::max(1, updates[s])), at_input);
  }
  const bool split = !order.weight_grad_device_of.empty();
  for (std::size_t d = 0; !split && d < order.passes.size(); ++d) {
    for (const Pass& pass : order.passes[d]) {
      const std::size_t s = holder[pass.virtual_stage];
      if (updates[s] > 0) {
        stages[s].run(pass.kind,
                      stride > 1 ? inputs.number_of(pass) : static_cast<int>(pass.micro_batch));
      }
    }
  }
  for (std::size_t s = 0; s < result.size(); ++s) {
    result[s] = stages[holder[s]].use();
  }
  for (const Edge& edge : order.edges) {  // a forward that waits for an update says which one
    if (edge.from_lane == Lane::Optimizer && edge.to_lane == Lane::Forward &&
        edge.from == edge.to) {
      result[edge.to] = {edge.shift - 1, edge.shift};
    }
  }
  return result;
}

void add_predictions(const PipelineOrder& order, const std::vector<SimTime>& prediction,
                     PipelineCosts& costs) {
  if (order.versions != Versions::Predicted) {
    return;
  }
  const auto units = static_cast<std::size_t>(order.micro_batches);
  give_units_times(order.micro_batches, costs);
  const std::size_t per_update = units / static_cast<std::size_t>(order.iterations);
  for (const std::vector<Pass>& list : order.passes) {
    std::vector<std::size_t> updates(prediction.size(), 0);
    for (const Pass& pass : list) {
      const std::size_t s = pass.virtual_stage;
      if (pass.kind == PassKind::Optimizer) {
        ++updates[s];
      } else if (pass.micro_batch % per_update == 0 && updates[s] < pass.micro_batch / per_update) {
        const bool forward = pass.kind == PassKind::Forward;
        (forward ? costs.unit_forward : costs.unit_backward)[s * units + pass.micro_batch] +=
            prediction[s];
      }
    }
  }
}

VersionUseOfStage worst_of(const std::vector<VersionUseOfStage>& stages) {
  VersionUseOfStage worst;
  for (const VersionUseOfStage& stage : stages) {
    worst.staleness = std::max(worst.staleness, stage.staleness);
    worst.versions = std::max(worst.versions, stage.versions);
  }
  return worst;
}

namespace {

// Of the gradients of the first virtual stage.
std::vector<SimTime> first_stage_ends(const PipelineOrder& order, const PipelineResult& result) {
  ORRERY_CHECK(result.spans.size() == order.passes.size(), "evaluate with record_spans");
  std::vector<SimTime> ends;
  for (const PassSpan& span : result.spans[device_of(order, Lane::Gradient, 0)]) {
    if (span.pass.virtual_stage == 0 && lane_of(span.pass.kind) == Lane::Gradient) {
      ends.push_back(span.end);
    }
  }
  return ends;
}

// From and to which of `count` units a schedule that never flushes is steady: the middle third, or
// more of them where less is no whole number of its periods. Updates and predictions come once an
// iteration, and with transfers 1F1B repeats what it does every as many units as it has stages.
std::pair<std::size_t, std::size_t> steady_units(const PipelineOrder& order, std::size_t count) {
  const auto iteration = static_cast<std::size_t>(order.micro_batches / order.iterations);
  const auto stages = static_cast<std::size_t>(chains_of(order).front().stages);
  const std::size_t third = count / 3;
  for (const std::size_t period : {std::lcm(iteration, stages), stages, iteration}) {
    for (const std::size_t margin : {third, std::min(third, stages)}) {
      const std::size_t span = 2 * count / 3 - third + 2 * (third - margin);
      if (span >= period) {
        return {margin, margin + span / period * period};
      }
    }
  }
  return {third, 2 * count / 3};
}

// When the forwards and the gradients of the first chain end: by kind and virtual stage, each in
// the order of its list.
std::vector<std::vector<SimTime>> ends_by_lane(const PipelineOrder& order,
                                               const PipelineResult& result) {
  const Chain chain = chains_of(order).front();
  const auto stages = static_cast<std::size_t>(chain.stages);
  std::vector<std::vector<SimTime>> ends(2 * stages);
  for (const std::vector<PassSpan>& list : result.spans) {
    for (const PassSpan& span : list) {
      const Lane lane = lane_of(span.pass.kind);
      const std::size_t stage = span.pass.virtual_stage - static_cast<std::size_t>(chain.first);
      if (stage < stages && (lane == Lane::Forward || lane == Lane::Gradient)) {
        ends[(lane == Lane::Forward ? 0 : stages) + stage].push_back(span.end);
      }
    }
  }
  return ends;
}

// Units from `from` on that end, on every lane, before the last forward of the first stage does:
// until then nothing is as it is because the run is to end.
std::size_t units_before_drain(const std::vector<std::vector<SimTime>>& ends, std::size_t from) {
  const SimTime last = ends.front().back();
  std::size_t count = ends.front().size();
  for (const std::vector<SimTime>& lane : ends) {
    const auto later = std::upper_bound(lane.begin(), lane.end(), last);
    count = std::min(count, static_cast<std::size_t>(later - lane.begin()));
  }
  return count - std::min(count, from);
}

// The fewest units after which every lane does the same again, from unit `from` on for `count`
// steps: the shortest period of the steps, by the borders of their prefixes. O(steps x lanes).
std::size_t repeated_after(const std::vector<std::vector<SimTime>>& ends, std::size_t from,
                           std::size_t count) {
  const auto alike = [&](std::size_t a, std::size_t b) {
    return std::all_of(ends.begin(), ends.end(), [&](const std::vector<SimTime>& lane) {
      return lane[from + a + 1] - lane[from + a] == lane[from + b + 1] - lane[from + b];
    });
  };
  std::vector<std::size_t> border(count, 0);
  for (std::size_t k = 1; k < count; ++k) {
    std::size_t length = border[k - 1];
    while (length > 0 && !alike(k, length)) {
      length = border[length - 1];
    }
    border[k] = length + (alike(k, length) ? 1 : 0);
  }
  return count - border.back();
}

// The exact time of a unit, where the run is seen to repeat itself: after some start all ends of a
// pipeline come again, so many units later by one time. 0: it is too short for that to show.
double repeated_period(const PipelineOrder& order, const PipelineResult& result) {
  const std::vector<std::vector<SimTime>> ends = ends_by_lane(order, result);
  const std::size_t units = ends.front().size();
  if (std::any_of(ends.begin(), ends.end(), [units](const auto& lane) {
        return lane.size() != units || !std::is_sorted(lane.begin(), lane.end());
      })) {
    return 0.0;
  }
  const std::size_t from = units / 3;
  const std::size_t seen = units_before_drain(ends, from);
  if (seen < 3) {
    return 0.0;
  }
  const std::size_t steps = seen - 1;
  const std::size_t cycle = repeated_after(ends, from, steps);
  const auto iteration = static_cast<std::size_t>(order.micro_batches / order.iterations);
  if (steps < 2 * cycle || steps < iteration + cycle) {
    return 0.0;  // no update in between, or no second cycle
  }
  const SimTime time = ends.front()[from + cycle] - ends.front()[from];
  const bool together = std::all_of(ends.begin(), ends.end(), [&](const auto& lane) {
    return lane[from + cycle] - lane[from] == time;
  });
  return together ? static_cast<double>(time.ps) / static_cast<double>(cycle) : 0.0;
}

// The mean in the middle of the run, where stages may still run ahead of slower ones; no less than
// the busiest device takes for a unit.
double middle_period(const PipelineOrder& order, const PipelineResult& result) {
  const std::vector<SimTime> ends = first_stage_ends(order, result);
  if (ends.size() < 3) {
    return 0.0;
  }
  const auto [from, to] = steady_units(order, ends.size());
  SimTime busy;
  for (const DeviceUse& use : result.devices) {
    busy = std::max(busy, use.busy);
  }
  return std::max(static_cast<double>((ends[to] - ends[from]).ps) / static_cast<double>(to - from),
                  static_cast<double>(busy.ps) / static_cast<double>(ends.size()));
}

}  // namespace

double steady_period(const PipelineOrder& order, const PipelineResult& result) {
  ORRERY_CHECK(result.spans.size() == order.passes.size(), "evaluate with record_spans");
  const double repeated = repeated_period(order, result);
  const double of_unit = repeated > 0 ? repeated : middle_period(order, result);
  // The chains that take units in turn have ended theirs in the same time.
  const int turns = order.chains.empty() ? 1 : order.chains.front().stride;
  return of_unit * order.slices / turns;
}

double iteration_period(const PipelineOrder& order, const PipelineResult& result) {
  const auto iterations = static_cast<std::size_t>(order.iterations);
  if (iterations < 2) {
    return 0.0;
  }
  const std::vector<SimTime> ends = first_stage_ends(order, result);
  if (ends.size() < iterations) {
    return 0.0;
  }
  const SimTime first = ends[ends.size() / iterations - 1];
  return static_cast<double>((ends.back() - first).ps) / static_cast<double>(iterations - 1);
}

}  // namespace orrery::sim
