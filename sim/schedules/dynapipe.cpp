// SPDX-License-Identifier: Apache-2.0
// For micro-batches of different length. In every cycle a stage runs at most one forward and one
// backward whose inputs are there, the forward only if what it keeps fits under the cap; cycles of
// neighbours are half a cycle apart. The order needs no times; they follow when it runs. Without a
// cap, or with one of at least p equal micro-batches, it is 1f1b. A stage holds no more than the
// one before it, so that what was admitted there is admitted everywhere and nothing waits for ever.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "sim/orders/awake_stages.hpp"
#include "sim/schedule.hpp"

namespace orrery::sim {
namespace {

Refusal check_weights(const ScheduleParams& params) {
  const std::vector<double>& weights = params.weights;
  if (weights.empty()) {
    return {};
  }
  if (weights.size() != static_cast<std::size_t>(params.micro_batches)) {
    return refused(fmt::format("what {} micro-batches keep is required, not what {} do",
                               params.micro_batches, weights.size()),
                   Size::MicroBatches, static_cast<double>(weights.size()));
  }
  const double largest = *std::max_element(weights.begin(), weights.end());
  return params.cap == 0.0 || largest <= params.cap
             ? Refusal()
             : refused(fmt::format("a micro-batch keeps {:.6g}", largest), Size::Cap,
                       std::ceil(largest * 1e3) / 1e3);
}

Refusal check(const ScheduleParams& params) {
  return first_broken({check_sizes(params), check_one_slice(params), check_one_replica(params),
                       check_own_iterations(params), check_own_warm_up(params),
                       check_one_chunk(params), check_weights(params), check_cap(params, 1)});
}

PipelineOrder order(const ScheduleParams& params) {
  const auto p = static_cast<std::size_t>(params.stages);
  const auto m = static_cast<std::uint32_t>(params.micro_batches);
  const double cap = params.cap == 0.0 ? std::numeric_limits<double>::infinity() : params.cap;
  const auto weight = [&](std::uint32_t j) {
    return params.weights.empty() ? 1.0 : params.weights[j];
  };
  PipelineOrder result = empty_order(params, loop_placement(params), 2);
  std::vector<std::uint32_t> forwards(p, 0);
  std::vector<std::uint32_t> backwards(p, 0);
  std::vector<double> held(p, 0);
  AwakeStages awake(p);
  for (std::size_t half = 0; backwards.front() < m; ++half) {
    // Neighbours run the other kind in this half cycle, so that what they have done is complete.
    for (const std::size_t i : awake.begin()) {
      const auto stage = static_cast<std::uint16_t>(i);
      const std::size_t passes = result.passes[i].size();
      if ((half + i) % 2 == 0) {
        const std::uint32_t arrived = i == 0 ? m : forwards[i - 1];
        const bool first = forwards[i] == backwards[i];  // sums of fractions err
        if (forwards[i] < arrived && (first || held[i] + weight(forwards[i]) <= cap)) {
          held[i] = (first ? 0 : held[i]) + weight(forwards[i]);
          result.passes[i].emplace_back(PassKind::Forward, stage, forwards[i]++);
        }
      } else if (backwards[i] < (i + 1 == p ? forwards[i] : backwards[i + 1])) {
        held[i] -= weight(backwards[i]);
        result.passes[i].emplace_back(PassKind::Backward, stage, backwards[i]++);
      }
      awake.has_looked(i, half, result.passes[i].size() > passes);
    }
  }
  return result;
}

double most(const ScheduleParams& params) {
  const bool lighter = params.cap > 0 && !params.weights.empty();
  return lighter ? params.micro_batches : cap_or_one_per_stage(params);
}

}  // namespace

extern const Schedule schedule_dynapipe = {
    .name = "dynapipe",
    .description = "cycles of one backward and one forward, admitted under a cap of activations",
    .constraints = "1 chunk per device; cap at least 1",
    .source = "Jiang et al., DynaPipe, EuroSys 2024 (arXiv 2311.10418), section on scheduling",
    .check = check,
    .order = order,
    .most_activations = most,
    .in_plans = true,
};

}  // namespace orrery::sim
