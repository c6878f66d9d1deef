// SPDX-License-Identifier: Apache-2.0
#include "sim/partitions.hpp"

#include <vector>

namespace orrery::sim {

namespace {

TierRun run_rounds(const Partitions& partitions, const TierGraph& graph, const TierPolicy& policy,
                   int rounds) {
  constexpr int kDevice = 0;
  constexpr int kHost = 1;
  const std::vector<TierObject> objects(
      static_cast<std::size_t>(partitions.count),
      {"partition", partitions.resident(), {{kHost, partitions.weights}}});
  std::vector<TierStep> steps;
  for (int round = 0; round < rounds; ++round) {
    for (int part = 0; part < partitions.count; ++part) {
      steps.push_back({part, partitions.forward, {}});
    }
    for (int part = partitions.count - 1; partitions.training && part >= 0; --part) {
      steps.push_back({part, partitions.backward, {{kHost, partitions.resident()}}});
    }
  }
  return run_tiers(graph, kDevice, objects, steps, policy);
}

}  // namespace

PartitionRound partition_round(const Partitions& partitions, const TierGraph& graph,
                               const TierPolicy& policy) {
  const TierRun two = run_rounds(partitions, graph, policy, 2);
  const TierRun three = run_rounds(partitions, graph, policy, 3);
  return {three.makespan - two.makespan, three.busy - two.busy, three.peak};
}

}  // namespace orrery::sim
