// SPDX-License-Identifier: Apache-2.0
#include "sim/orders/post_validation.hpp"

#include <algorithm>
#include <utility>

#include "base/limits.hpp"
#include "sim/orders/order_blocks.hpp"

namespace orrery::sim {
namespace {

bool is_gradient(const Pass& pass) { return lane_of(pass.kind) == Lane::Gradient; }

}  // namespace

PipelineOrder with_post_validation(PipelineOrder order, const ScheduleParams& params) {
  const int iterations = params.iterations;
  if (iterations <= 1) {
    return order;
  }
  const auto devices = static_cast<int>(order.passes.size());
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
  std::ptrdiff_t ahead = units + 1;  // forwards before the state is back
  for (int d = 0; d < devices; ++d) {
    const std::vector<Pass>& list = once[static_cast<std::size_t>(d)];
    std::vector<Pass>& all = order.passes[static_cast<std::size_t>(d)];
    // On its way back the state must not wait for a device that is still at its forwards.
    ahead = std::clamp(ahead - 1, std::ptrdiff_t{0},
                       std::find_if(list.begin(), list.end(), is_gradient) - list.begin());
    const auto warm_up = list.begin() + ahead;
    for (int iteration = 0; iteration < iterations; ++iteration) {
      for (auto pass = list.begin(); pass != list.end(); ++pass) {
        if (pass == warm_up && iteration > 0) {
          add_pass(order, PassKind::Forward, whole + devices - 1 - d, iteration - 1);
        }
        all.push_back(*pass);
        all.back().micro_batch += static_cast<std::uint32_t>(units * iteration);
      }
      add_pass(order, PassKind::Forward, state + d, iteration);
      for (std::size_t s = 0; s < stages.size(); ++s) {
        if (stages[s] == d) {
          add_pass(order, PassKind::Optimizer, static_cast<int>(s), iteration);
        }
      }
    }
    add_pass(order, PassKind::Forward, whole + devices - 1 - d, iterations - 1);
  }
  return order;
}

std::string check_validated_iterations(const ScheduleParams& params) {
  if (!check_sizes(params).empty()) {
    return "";  // named elsewhere
  }
  const std::int64_t passes = std::int64_t{params.stages} * params.chunks * params.micro_batches;
  return check_product(passes * std::max(params.iterations, 1), limits::kMaxPasses / 4,
                       "stages x chunks x micro-batches x iterations");
}

}  // namespace orrery::sim
