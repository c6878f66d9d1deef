// SPDX-License-Identifier: Apache-2.0
#include "sim/order_blocks.hpp"

#include <algorithm>
#include <utility>

namespace orrery::sim {

std::vector<std::uint16_t> v_placement(int stages) { return zigzag_placement(stages, 2); }

std::vector<std::uint16_t> zigzag_placement(int stages, int turns) {
  std::vector<std::uint16_t> device_of;
  for (int s = 0; s < stages * turns; ++s) {
    const int along = s % (2 * stages);
    device_of.push_back(
        static_cast<std::uint16_t>(along < stages ? along : 2 * stages - 1 - along));
  }
  return device_of;
}

PipelineOrder one_chain(const ScheduleParams& params, std::vector<std::uint16_t> device_of,
                        int kinds) {
  PipelineOrder order = empty_order(params, std::move(device_of), kinds);
  order.slices = params.slices;
  order.micro_batches *= params.slices;
  order.pieces = params.chunks * params.slices;
  return order;
}

int add_chain(PipelineOrder& order, const std::vector<std::uint16_t>& device_of, Chain chain) {
  chain.first = static_cast<int>(order.device_of.size());
  chain.stages = static_cast<int>(device_of.size());
  order.device_of.insert(order.device_of.end(), device_of.begin(), device_of.end());
  order.num_virtual_stages = static_cast<int>(order.device_of.size());
  order.micro_batches = std::max(order.micro_batches, chain.units);
  order.chains.push_back(chain);
  return chain.first;
}

void add_pass(PipelineOrder& order, PassKind kind, int virtual_stage, int unit, bool joined) {
  const auto stage = static_cast<std::uint16_t>(virtual_stage);
  order.passes[order.device_of[stage]].emplace_back(kind, stage, static_cast<std::uint32_t>(unit),
                                                    joined);
}

}  // namespace orrery::sim
