// SPDX-License-Identifier: Apache-2.0
#include "sim/versions.hpp"

#include <algorithm>
#include <map>

#include "base/error.hpp"
#include "sim/pass_inputs.hpp"

namespace orrery::sim {
namespace {

class StageVersions {
 public:
  StageVersions(Versions rule, int units_per_update) : rule_(rule), per_update_(units_per_update) {}

  void run(const Pass& pass) {
    const auto unit = static_cast<int>(pass.micro_batch);
    if (pass.kind == PassKind::Optimizer) {
      ++updates_;
    } else if (pass.kind == PassKind::Forward) {
      const int own = unit / per_update_;
      const int used = rule_ == Versions::Delayed ? std::max(own - 1, 0) : updates_;
      ORRERY_CHECK(used <= updates_, "a forward uses parameters that are not there yet");
      use_.staleness = std::max(use_.staleness, own - used);
      ++users_[used];
      in_flight_[unit] = used;
    } else if (const auto flying = in_flight_.find(unit);
               flying != in_flight_.end() && pass.kind != PassKind::InputGrad) {
      if (--users_[flying->second] == 0) {
        users_.erase(flying->second);
      }
      in_flight_.erase(flying);
    }
    count();
  }

  VersionUseOfStage use() const { return use_; }

 private:
  void count() {
    int versions = 1;
    if (rule_ == Versions::Stashed || rule_ == Versions::Delayed) {
      versions = static_cast<int>(users_.size()) + (users_.count(updates_) == 0 ? 1 : 0);
    } else if (rule_ == Versions::Predicted) {
      versions = 2;
    }
    use_.versions = std::max(use_.versions, versions);
  }

  Versions rule_;
  int per_update_;
  int updates_ = 0;
  std::map<int, int> users_;      // units in flight per version
  std::map<int, int> in_flight_;  // version per unit
  VersionUseOfStage use_;
};

}  // namespace

std::vector<VersionUseOfStage> count_versions(const PipelineOrder& order) {
  std::vector<VersionUseOfStage> result(static_cast<std::size_t>(order.num_virtual_stages));
  std::vector<int> updates(result.size(), 0);
  for (const auto& list : order.passes) {
    for (const Pass& pass : list) {
      updates[pass.virtual_stage] += pass.kind == PassKind::Optimizer ? 1 : 0;
    }
  }
  const PassInputs inputs(order);
  std::vector<StageVersions> stages;
  for (std::size_t s = 0; s < result.size(); ++s) {
    const auto units = static_cast<int>(inputs.units(s));
    stages.emplace_back(order.versions, std::max(1, units / std::max(1, updates[s])));
  }
  const bool split = !order.weight_grad_device_of.empty();
  for (std::size_t d = 0; !split && d < order.passes.size(); ++d) {
    for (const Pass& pass : order.passes[d]) {
      if (updates[pass.virtual_stage] > 0) {
        stages[pass.virtual_stage].run(pass);
      }
    }
  }
  for (std::size_t s = 0; s < result.size(); ++s) {
    result[s] = stages[s].use();
  }
  for (const Edge& edge : order.edges) {  // a forward that waits for an update says which one
    if (edge.from_lane == Lane::Optimizer && edge.to_lane == Lane::Forward &&
        edge.from == edge.to) {
      result[edge.to] = {edge.shift - 1, edge.shift};
    }
  }
  return result;
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

}  // namespace

double steady_period(const PipelineOrder& order, const PipelineResult& result) {
  const std::vector<SimTime> ends = first_stage_ends(order, result);
  if (ends.size() < 3) {
    return 0.0;
  }
  const std::size_t from = ends.size() / 3;
  const std::size_t to = 2 * ends.size() / 3;
  return static_cast<double>((ends[to] - ends[from]).ps) / static_cast<double>(to - from);
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
