// SPDX-License-Identifier: Apache-2.0
// Random pipelines for the property tests: costs, schedules of the registry, and periodic orders
// made by repeating one random building block. Everything follows from a seed.
#pragma once

#include <algorithm>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

#include "base/random.hpp"
#include "sim/pipeline/pipeline.hpp"

namespace orrery::sim {

inline SimTime random_time(Random& random, std::uint64_t low, std::uint64_t high) {
  return {static_cast<std::int64_t>(low + random.below(high - low + 1))};
}

// Stages differ by up to `spread`; no transfer between chunks of one device.
inline PipelineCosts random_costs(Random& random, const PipelineOrder& order, std::uint64_t spread,
                                  std::uint64_t max_latency) {
  PipelineCosts costs;
  const auto stages = static_cast<std::size_t>(order.num_virtual_stages);
  const std::uint64_t forward = 1 + random.below(1000);
  const std::uint64_t grad = 1 + random.below(1000);
  for (std::size_t s = 0; s < stages; ++s) {
    costs.forward.push_back(random_time(random, forward, forward + spread));
    costs.input_grad.push_back(random_time(random, grad, grad + spread));
    costs.weight_grad.push_back(random_time(random, grad, grad + spread));
    costs.backward.push_back(random_time(random, 2 * grad, 2 * grad + spread));
    costs.activation.push_back(ByteCount(static_cast<std::int64_t>(random.below(100))));
    costs.forward_workspace.push_back(ByteCount(static_cast<std::int64_t>(random.below(50))));
    costs.backward_workspace.push_back(ByteCount(static_cast<std::int64_t>(random.below(50))));
    costs.first_forward_extra.push_back(random_time(random, 0, spread));
    costs.last_backward_extra.push_back(random_time(random, 0, spread));
    if (s + 1 < stages) {
      const bool local = order.device_of[s] == order.device_of[s + 1];
      costs.send_forward.push_back(local ? SimTime{} : random_time(random, 0, max_latency));
      costs.send_backward.push_back(local ? SimTime{} : random_time(random, 0, max_latency));
    }
  }
  for (std::size_t edge = 0; edge < order.edges.size() && max_latency > 0; ++edge) {
    costs.edge_latency.push_back(random_time(random, 0, max_latency));
  }
  for (std::size_t stage = 0; order.extended && stage < stages; ++stage) {  // all are unlike
    costs.kind_of.push_back(static_cast<std::uint16_t>(costs.kinds++));
    for (std::size_t backward = 0; backward < stages; ++backward) {
      const SimTime most = std::min(costs.forward[stage], costs.backward[backward]);
      costs.hidden.push_back(random_time(random, 0, static_cast<std::uint64_t>(most.ps)));
    }
  }
  return costs;
}

// Every pass of a micro-batch gets a slot, later than the slots of what it needs; micro-batch j
// adds j periods. In slot order per device this is a valid order, periodic but for its ends.
inline PipelineOrder random_periodic_order(Random& random, int devices, int stages,
                                           int micro_batches, int edges = 0) {
  PipelineOrder order;
  order.num_virtual_stages = stages;
  order.micro_batches = micro_batches;
  order.passes.resize(static_cast<std::size_t>(devices));
  struct Slot {
    std::uint64_t at;
    PassKind kind;
    std::uint16_t stage;
  };
  std::vector<Slot> block;
  std::uint64_t at = 0;
  const std::uint64_t gap = 1 + random.below(6);
  const bool split = random.below(2) == 0;
  for (int s = 0; s < stages; ++s) {
    order.device_of.push_back(s < devices ? static_cast<std::uint16_t>(s)
                                          : static_cast<std::uint16_t>(
                                                random.below(static_cast<std::uint64_t>(devices))));
    block.push_back(
        {at += 1 + random.below(gap), PassKind::Forward, static_cast<std::uint16_t>(s)});
  }
  for (int s = stages - 1; s >= 0; --s) {
    const auto stage = static_cast<std::uint16_t>(s);
    at += 1 + random.below(gap);
    block.push_back({at, split ? PassKind::InputGrad : PassKind::Backward, stage});
    if (split) {
      block.push_back({at + 1 + random.below(4 * gap), PassKind::WeightGrad, stage});
    }
  }
  const std::uint64_t period = 1 + random.below(8);
  for (int edge = 0; edge < edges; ++edge) {  // from a unit whose slot is an earlier one
    const Slot& from = block[random.below(block.size())];
    const Slot& to = block[random.below(block.size())];
    const std::uint64_t ahead = from.at >= to.at ? (from.at - to.at) / period + 1 : 0;
    order.edges.push_back({lane_of(from.kind), from.stage, lane_of(to.kind), to.stage,
                           static_cast<int>(ahead + random.below(3))});
  }
  std::vector<std::tuple<std::uint64_t, std::uint32_t, std::size_t>> slots;
  for (std::uint32_t j = 0; j < static_cast<std::uint32_t>(micro_batches); ++j) {
    for (std::size_t b = 0; b < block.size(); ++b) {
      slots.emplace_back(block[b].at + j * period, j, b);
    }
  }
  std::sort(slots.begin(), slots.end());
  for (const auto& [when, j, b] : slots) {
    order.passes[order.device_of[block[b].stage]].push_back({block[b].kind, block[b].stage, j});
  }
  return order;
}

// Any valid order: one ready pass after the other, drawn at random.
inline PipelineOrder random_order(Random& random, int devices, int stages, int micro_batches) {
  PipelineOrder order = random_periodic_order(random, devices, stages, micro_batches);
  std::vector<std::vector<Pass>> rest = order.passes;
  const auto index = [&](std::size_t s, std::uint32_t j) {
    return s * static_cast<std::size_t>(micro_batches) + j;
  };
  const auto all = static_cast<std::size_t>(stages) * static_cast<std::size_t>(micro_batches);
  std::vector<bool> forward(all, false);
  std::vector<bool> gradient(all, false);
  const auto ready = [&](const Pass& pass) {
    const std::size_t s = pass.virtual_stage;
    switch (pass.kind) {
      case PassKind::Forward:
        return s == 0 || forward[index(s - 1, pass.micro_batch)];
      case PassKind::WeightGrad:
        return static_cast<bool>(gradient[index(s, pass.micro_batch)]);
      default:
        return forward[index(s, pass.micro_batch)] && (s + 1 == static_cast<std::size_t>(stages) ||
                                                       gradient[index(s + 1, pass.micro_batch)]);
    }
  };
  std::size_t left = 0;
  for (std::size_t d = 0; d < rest.size(); ++d) {
    left += rest[d].size();
    order.passes[d].clear();
  }
  while (left > 0) {
    const std::size_t d = random.below(rest.size());
    if (rest[d].empty()) {
      continue;
    }
    const std::size_t k = random.below(rest[d].size());
    const Pass pass = rest[d][k];
    if (!ready(pass)) {
      continue;
    }
    rest[d].erase(rest[d].begin() + static_cast<std::ptrdiff_t>(k));
    order.passes[d].push_back(pass);
    if (pass.kind == PassKind::Forward) {
      forward[index(pass.virtual_stage, pass.micro_batch)] = true;
    } else if (pass.kind != PassKind::WeightGrad) {
      gradient[index(pass.virtual_stage, pass.micro_batch)] = true;
    }
    --left;
  }
  return order;
}

}  // namespace orrery::sim
