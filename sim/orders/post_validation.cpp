// SPDX-License-Identifier: Apache-2.0
#include "sim/orders/post_validation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/limits.hpp"
#include "sim/orders/order_blocks.hpp"

namespace orrery::sim {
namespace {

// Forwards of the first chunk that every device runs before it has the whole state. On its way back
// the state must not wait for a device that is still at its forwards.
std::vector<std::ptrdiff_t> forwards_ahead(const PipelineOrder& once) {
  const auto devices = static_cast<int>(once.passes.size());
  std::vector<std::ptrdiff_t> ahead;
  for (const std::vector<Pass>& list : once.passes) {
    const auto other = std::find_if(list.begin(), list.end(), [&](const Pass& pass) {
      return pass.kind != PassKind::Forward || pass.virtual_stage >= devices;
    });
    const std::ptrdiff_t most = ahead.empty() ? once.micro_batches : ahead.back() - 1;
    ahead.push_back(std::clamp(most, std::ptrdiff_t{0}, other - list.begin()));
  }
  return ahead;
}

// Forwards that have used an update which is taken back, in a chain for each place in the lists;
// the first virtual stages of the chains.
std::vector<int> add_discarded(PipelineOrder& order, const std::vector<std::ptrdiff_t>& ahead,
                               int units, int rollbacks) {
  std::vector<int> first;
  for (int place = 0; rollbacks > 0 && place < ahead.front(); ++place) {
    const auto devices = std::count_if(ahead.begin(), ahead.end(),
                                       [place](std::ptrdiff_t count) { return count > place; });
    first.push_back(add_chain(
        order, device_run(0, static_cast<int>(devices)),
        {.units = rollbacks, .forward_only = true, .first_unit = units + place, .stride = units}));
  }
  order.parts.resize(order.device_of.size(), 1);
  return first;
}

// Sums of the gradients that `shared` stages have in common, behind the whole of them, before the
// state leaves their devices.
void add_sums(PipelineOrder& order, const std::vector<int>& shared, int state) {
  const auto list = static_cast<int>(order.passes.size());
  order.passes.emplace_back();
  const int sum = add_service(order, list, order.iterations);
  order.parts.resize(order.device_of.size(), 0);
  for (const int stage : shared) {
    const int device = order.device_of[static_cast<std::size_t>(stage)];
    add_edge(order, Lane::Gradient, stage, Lane::Forward, sum);
    add_edge(order, Lane::Forward, sum, Lane::Forward, state + device);
  }
  for (int iteration = 0; iteration < order.iterations; ++iteration) {
    add_pass(order, PassKind::Forward, sum, iteration);
  }
}

}  // namespace

PipelineOrder with_post_validation(PipelineOrder order, const ScheduleParams& params,
                                   const std::vector<int>& shared) {
  const int iterations = params.iterations;
  if (iterations <= 1) {
    return order;
  }
  const auto devices = static_cast<int>(order.passes.size());
  const std::vector<std::ptrdiff_t> ahead = forwards_ahead(order);
  order.pieces = pieces_of(order);
  const std::vector<std::vector<Pass>> once = std::exchange(order.passes, {});
  const int units = order.micro_batches;
  const std::vector<std::uint16_t> stages = std::exchange(order.device_of, {});
  order.parts.assign(stages.size(), 1);
  order.parts.resize(stages.size() + 2 * once.size(), 0);
  order.parts_per_share = order.pieces;
  order.iterations = iterations;
  order.extended = true;
  add_chain(order, stages, {.units = units * iterations});
  const Chain messages{.units = iterations, .role = Role::Service, .forward_only = true};
  std::vector<std::uint16_t> along = device_run(0, devices);
  const int state = add_chain(order, along, messages);
  std::reverse(along.begin(), along.end());
  const int whole = add_chain(order, along, messages);
  add_edge(order, Lane::Forward, whole - 1, Lane::Forward, whole);
  order.passes.resize(once.size());
  if (!shared.empty()) {
    add_sums(order, shared, state);
  }
  const std::vector<int> discarded = add_discarded(order, ahead, units, params.rollbacks);
  std::vector<std::vector<int>> stages_of(once.size());
  for (std::size_t s = 0; s < stages.size(); ++s) {
    stages_of[stages[s]].push_back(static_cast<int>(s));
  }
  for (int d = 0; d < devices; ++d) {
    const std::vector<Pass>& list = once[static_cast<std::size_t>(d)];
    std::vector<Pass>& all = order.passes[static_cast<std::size_t>(d)];
    const auto check = [&](int iteration) {
      add_pass(order, PassKind::Forward, whole + devices - 1 - d, iteration);
    };
    const auto warm_up = list.begin() + ahead[static_cast<std::size_t>(d)];
    for (int iteration = 0; iteration < iterations; ++iteration) {
      const bool again = iteration > 0 && iteration <= params.rollbacks;
      for (auto pass = list.begin(); again && pass != warm_up; ++pass) {
        const auto place = static_cast<std::size_t>(pass - list.begin());
        add_pass(order, PassKind::Forward, discarded[place] + d, iteration - 1);
      }
      if (again) {
        check(iteration - 1);
      }
      for (auto pass = list.begin(); pass != list.end(); ++pass) {
        if (pass == warm_up && iteration > 0 && !again) {
          check(iteration - 1);
        }
        all.push_back(*pass);
        all.back().micro_batch += static_cast<std::uint32_t>(units * iteration);
      }
      add_pass(order, PassKind::Forward, state + d, iteration);
      for (const int stage : stages_of[static_cast<std::size_t>(d)]) {
        add_pass(order, PassKind::Optimizer, stage, iteration);
      }
    }
    check(iterations - 1);
  }
  return order;
}

namespace {

// Every micro-batch of the first iteration of each stage, once more, and four passes beside them.
Refusal check_discarded(const ScheduleParams& params) {
  constexpr int kBeside = 4;
  const std::int64_t discarded =
      std::int64_t{params.stages} * (std::int64_t{params.micro_batches} + kBeside);
  if (discarded <= kMaxVirtualStages) {
    return {};
  }
  const std::int64_t micro_batches = kMaxVirtualStages / params.stages - kBeside;
  return too_many(
      fmt::format("stages x (micro-batches + {}) of runs with rollbacks must be at most {}, not {}",
                  kBeside, kMaxVirtualStages, discarded),
      micro_batches > 0 ? Size::MicroBatches : Size::Rollbacks,
      static_cast<double>(std::max<std::int64_t>(micro_batches, 0)));
}

}  // namespace

Refusal check_validated_iterations(const ScheduleParams& params) {
  if (!check_sizes(params).empty()) {
    return {};  // named elsewhere
  }
  if (params.rollbacks != 0) {
    constexpr std::string_view kMeaning = "of iterations but the last";
    Refusal broken = first_broken(
        {check_at_most(params.rollbacks, std::max(params.iterations, 1) - 1, Size::Rollbacks,
                       kMeaning),
         check_at_least(params.rollbacks, 0, Size::Rollbacks, kMeaning), check_discarded(params)});
    if (!broken.empty()) {
      return broken;
    }
  }
  return check_product({{Size::Stages, params.stages},
                        {Size::Chunks, params.chunks},
                        {Size::MicroBatches, params.micro_batches},
                        {Size::Iterations, std::max(params.iterations, 1)}},
                       limits::kMaxPasses / 4);
}

}  // namespace orrery::sim
