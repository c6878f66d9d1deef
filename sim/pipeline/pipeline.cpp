// SPDX-License-Identifier: Apache-2.0
#include "sim/pipeline/pipeline.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "sim/pipeline/pass_inputs.hpp"
#include "sim/pipeline/pipeline_sweep.hpp"

namespace orrery::sim {
namespace {

bool fits(std::size_t size, std::size_t expected, bool optional) {
  return size == expected || (optional && size == 0);
}

// Of every pair of kinds no more than the shortest of their passes.
void check_hidden(const PipelineCosts& costs) {
  const std::size_t kinds = costs.kinds;
  ORRERY_CHECK(costs.hidden.size() == kinds * kinds, "one hidden time per pair of kinds");
  ORRERY_CHECK(kinds == 0 || costs.kind_of.size() == costs.forward.size(),
               "one kind per virtual stage");
  for (std::size_t stage = 0; stage < costs.kind_of.size(); ++stage) {
    const std::size_t kind = costs.kind_of[stage];
    ORRERY_CHECK(kind < kinds, "a virtual stage of an unknown kind");
    for (std::size_t other = 0; other < kinds; ++other) {
      const SimTime forward = costs.hidden[kind * kinds + other];
      const SimTime backward = costs.hidden[other * kinds + kind];
      ORRERY_CHECK(
          forward.ps >= 0 && forward <= costs.forward[stage] && backward <= costs.backward[stage],
          "a hidden time longer than a pass");
    }
  }
}

void check_shapes(const PipelineOrder& order, const PipelineCosts& costs) {
  const auto n = static_cast<std::size_t>(order.num_virtual_stages);
  ORRERY_CHECK(n > 0 && order.micro_batches > 0, "empty pipeline order");
  ORRERY_CHECK(order.device_of.size() == n, "one device per virtual stage");
  for (const std::uint16_t device : order.device_of) {
    ORRERY_CHECK(device < order.passes.size(), "a virtual stage on a device without a list");
  }
  ORRERY_CHECK(fits(costs.forward.size(), n, false) && fits(costs.input_grad.size(), n, true) &&
                   fits(costs.weight_grad.size(), n, true) && fits(costs.backward.size(), n, true),
               "one duration per virtual stage");
  ORRERY_CHECK(costs.send_forward.size() + 1 == n && costs.send_backward.size() + 1 == n,
               "one transfer time between neighbouring virtual stages");
  ORRERY_CHECK(fits(costs.last_backward_extra.size(), n, true) &&
                   fits(costs.first_forward_extra.size(), n, true),
               "one extra time per virtual stage or none");
  ORRERY_CHECK(fits(costs.activation.size(), n, true) &&
                   fits(costs.forward_workspace.size(), n, true) &&
                   fits(costs.backward_workspace.size(), n, true) &&
                   fits(costs.weight_grad_activation.size(), n, true) &&
                   fits(costs.boundary.size(), n, true),
               "one byte count per virtual stage or none");
  ORRERY_CHECK(fits(costs.recompute.size(), n, true) && fits(costs.optimizer.size(), n, true),
               "one duration per virtual stage or none");
  ORRERY_CHECK(fits(costs.edge_latency.size(), order.edges.size(), true),
               "one transfer time per edge or none");
  ORRERY_CHECK(fits(costs.kind_of.size(), n, true), "one kind per virtual stage or none");
  check_hidden(costs);
  const std::size_t units = n * static_cast<std::size_t>(order.micro_batches);
  ORRERY_CHECK(fits(costs.unit_forward.size(), units, true) &&
                   fits(costs.unit_input_grad.size(), units, true) &&
                   fits(costs.unit_weight_grad.size(), units, true) &&
                   fits(costs.unit_backward.size(), units, true) &&
                   fits(costs.unit_send_forward.size(), units, true) &&
                   fits(costs.unit_send_backward.size(), units, true),
               "one duration per virtual stage and unit or none");
}

double sum(const std::vector<SimTime>& times) {
  double total = 0.0;
  for (const SimTime time : times) {
    ORRERY_CHECK(time.ps >= 0, "negative duration");
    total += static_cast<double>(time.ps);
  }
  return total;
}

// What is added to one pass of a virtual stage, or, less than nothing, taken off it.
double sum_added(const std::vector<SimTime>& extras, const std::vector<SimTime>& passes) {
  double total = 0.0;
  for (std::size_t stage = 0; stage < extras.size(); ++stage) {
    const SimTime pass = passes.empty() ? SimTime{} : passes[stage];
    ORRERY_CHECK((pass + extras[stage]).ps >= 0, "negative duration");
    total += std::max(0.0, static_cast<double>(extras[stage].ps));
  }
  return total;
}

double sum(const std::vector<ByteCount>& bytes) {
  double total = 0.0;
  for (const ByteCount count : bytes) {
    ORRERY_CHECK(count.value() >= 0, "negative size");
    total += static_cast<double>(count.value());
  }
  return total;
}

// A unit runs a stage's backward whole or cut.
double sum_backwards(const PipelineCosts& costs) {
  (void)(sum(costs.input_grad) + sum(costs.weight_grad) + sum(costs.backward));  // none negative
  const auto of = [](const std::vector<SimTime>& times, std::size_t stage) {
    return stage < times.size() ? static_cast<double>(times[stage].ps) : 0.0;
  };
  double total = 0.0;
  for (std::size_t s = 0; s < costs.forward.size(); ++s) {
    total += std::max(of(costs.backward, s), of(costs.input_grad, s) + of(costs.weight_grad, s));
  }
  return total;
}

constexpr double kMax = kLongestRun;  // also of sizes

// Picoseconds of all units of every virtual stage, where stages have as many as their chain, and of
// the edges that their passes wait for: each for one of those into it.
double by_stage(const PipelineOrder& order, const PipelineCosts& costs) {
  const PassInputs inputs(order);
  const auto of = [](const std::vector<SimTime>& times, std::size_t stage) {
    return stage < times.size() ? static_cast<double>(times[stage].ps) : 0.0;
  };
  double total = 0.0;
  for (std::size_t s = 0; s < costs.forward.size(); ++s) {
    const double backward =
        std::max(of(costs.backward, s), of(costs.input_grad, s) + of(costs.weight_grad, s));
    total += inputs.units(s) *
             (of(costs.forward, s) + backward + of(costs.send_forward, s) +
              of(costs.send_backward, s) + of(costs.recompute, s) + of(costs.optimizer, s));
  }
  std::map<std::pair<Lane, std::uint16_t>, SimTime> longest;
  for (std::size_t e = 0; e < costs.edge_latency.size(); ++e) {
    SimTime& most = longest[{order.edges[e].to_lane, order.edges[e].to}];
    most = std::max(most, costs.edge_latency[e]);
  }
  for (const auto& [pass, most] : longest) {
    total += inputs.units(pass.second) * static_cast<double>(most.ps);
  }
  return total;
}

// No pipeline takes longer than all its passes and transfers one after the other, nor more memory
// than all activations together.
void check_range(const PipelineOrder& order, const PipelineCosts& costs) {
  const double m = order.micro_batches;
  const double bytes = m * (sum(costs.activation) + sum(costs.boundary)) +
                       sum(costs.forward_workspace) + sum(costs.backward_workspace);
  check_longest_run(longest_run(order, costs));
  if (bytes > kMax) {
    bad_input("pipeline", "the activations could exceed the largest size, 9.0e18 bytes");
  }
}

// Nothing when a virtual stage runs its micro-batches out of order although in_order is set.
std::optional<PipelineResult> evaluate(const PipelineOrder& order, const PipelineCosts& costs,
                                       const PipelineOptions& options, bool in_order) {
  detail::PipelineSweep sweep(order, costs, in_order, options.record_spans);
  if (in_order && options.steady_state && !options.record_spans && sweep.can_skip()) {
    for (const auto& runs : detail::periodic_phases(order)) {
      if (!detail::run_phase(sweep, runs)) {
        return std::nullopt;
      }
    }
  }
  if (!sweep.run_to_end()) {
    return std::nullopt;
  }
  return sweep.result();
}

}  // namespace

SimTime hidden_by_joining(const PipelineCosts& costs, const Pass& first, const Pass& second) {
  const bool pair = first.joined && first.kind == PassKind::Forward &&
                    second.kind == PassKind::Backward && !costs.hidden.empty();
  if (!pair) {
    return SimTime{};
  }
  const std::size_t forward = costs.kind_of[first.virtual_stage];
  return costs.hidden[forward * costs.kinds + costs.kind_of[second.virtual_stage]];
}

PipelineResult evaluate_pipeline(const PipelineOrder& order, const PipelineCosts& costs,
                                 const PipelineOptions& options) {
  ORRERY_CHECK(!costs.blocking_rendezvous, "blocking transfers need expand_pipeline and run");
  check_shapes(order, costs);
  check_range(order, costs);
  if (auto result = evaluate(order, costs, options, true)) {
    return std::move(*result);
  }
  return std::move(*evaluate(order, costs, options, false));
}

double longest_run(const PipelineOrder& order, const PipelineCosts& costs) {
  const double m = order.micro_batches;
  const double added = sum(costs.unit_forward) + sum(costs.unit_input_grad) +
                       sum(costs.unit_weight_grad) + sum(costs.unit_backward) +
                       sum(costs.unit_send_forward) + sum(costs.unit_send_backward) +
                       sum_added(costs.last_backward_extra, costs.backward) +
                       sum_added(costs.first_forward_extra, costs.forward);
  // As many units of all stages, and all edges together, are quickly summed: more than there are,
  // which only matters out of range.
  const double quickly = m * (sum(costs.forward) + sum_backwards(costs) + sum(costs.send_forward) +
                              sum(costs.send_backward) + sum(costs.recompute) +
                              sum(costs.optimizer) + sum(costs.edge_latency));
  return added + (quickly + added <= kMax ? quickly : by_stage(order, costs));
}

void check_longest_run(double picoseconds) {
  if (picoseconds > kMax) {
    throw BeyondSimulatedTime(
        "pipeline",
        fmt::format("all passes one after another take {:.4g} times the largest simulated time, "
                    "104 days",
                    picoseconds / kMax),
        "so many times fewer micro-batches (a smaller batch), or shorter passes: milliseconds for "
        "seconds");
  }
}

std::optional<SimTime> makespan_within(const PipelineOrder& order, const PipelineCosts& costs,
                                       const std::vector<std::int64_t>& idle_within) {
  check_shapes(order, costs);
  check_range(order, costs);
  ORRERY_CHECK(idle_within.size() == order.passes.size(), "one bound per device");
  return detail::PipelineSweep(order, costs, false, false).makespan_within(idle_within);
}

std::vector<std::vector<SimTime>> pass_ends(const PipelineOrder& order,
                                            const PipelineCosts& costs) {
  check_shapes(order, costs);
  check_range(order, costs);
  detail::PipelineSweep sweep(order, costs, false, false);
  const std::vector<std::int64_t> any(order.passes.size(),
                                      std::numeric_limits<std::int64_t>::max());
  ORRERY_CHECK(sweep.makespan_within(any).has_value(), "idles longer than the largest time");
  std::vector<std::vector<SimTime>> ends(order.passes.size());
  for (std::size_t d = 0; d < ends.size(); ++d) {
    ends[d].reserve(order.passes[d].size());
    for (const Pass& pass : order.passes[d]) {
      const auto lane = static_cast<std::size_t>(sweep.pass_class(pass).lane);
      ends[d].push_back({sweep.end_of(lane, pass.micro_batch)});
    }
  }
  return ends;
}

}  // namespace orrery::sim
