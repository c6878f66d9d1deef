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

// Groups that are exchanged together and rounds need not end together; after as many rounds as a
// group has partitions they do again. The last round is left out: nothing is loaded behind it.
PartitionRound partition_round(const Partitions& partitions, const TierGraph& graph,
                               const TierPolicy& policy) {
  constexpr int kWarmUp = 2;
  const int measured = policy.batch;
  const int rounds = kWarmUp + measured + 1;
  const TierRun run = run_rounds(partitions, graph, policy, rounds);
  const std::size_t steps = run.ends.size() / static_cast<std::size_t>(rounds);
  const auto end_of = [&](int round) {
    return run.ends[steps * static_cast<std::size_t>(round) - 1];
  };
  const Seconds time = to_seconds(end_of(kWarmUp + measured) - end_of(kWarmUp)) / measured;
  return {time, to_seconds(run.busy) / rounds, run.peak};
}

}  // namespace orrery::sim
