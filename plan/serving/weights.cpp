// SPDX-License-Identifier: Apache-2.0
#include "plan/serving/weights.hpp"

#include <algorithm>
#include <numeric>

namespace orrery::plan {
namespace {

constexpr std::size_t kWarmRounds = 2;        // until what is ahead of the computation has settled
constexpr std::size_t kMostBlocks = 1 << 16;  // in the iterations that are measured

std::vector<ByteCount> away(const std::vector<ServedWeights>& blocks) {
  std::vector<ByteCount> bytes;
  for (const ServedWeights& block : blocks) {
    if (block.home != Tier::Device) {
      bytes.push_back(block.bytes);
    }
  }
  return bytes;
}

// Of neighbours in the order of iterations, whose first follows the last.
ByteCount largest_window(const std::vector<ByteCount>& bytes, std::size_t window) {
  ByteCount sum;
  ByteCount largest;
  window = std::min(window, bytes.size());
  for (std::size_t index = 0; index < bytes.size() + window; ++index) {
    sum += bytes[index % bytes.size()];
    if (index >= window) {
      sum -= bytes[(index - window) % bytes.size()];
    }
    largest = std::max(largest, sum);
  }
  return largest;
}

}  // namespace

WeightsHeld weights_held(const std::vector<ServedWeights>& blocks, int window) {
  WeightsHeld held;
  for (const ServedWeights& block : blocks) {
    (block.home == Tier::Device ? held.device
     : block.home == Tier::Host ? held.host
                                : held.disk) += block.bytes;
  }
  held.device += largest_window(away(blocks), static_cast<std::size_t>(window));
  return held;
}

WeightsHeld weights_fetched(const std::vector<ServedWeights>& blocks, int window) {
  if (static_cast<std::size_t>(window) >= away(blocks).size()) {
    return {};
  }
  WeightsHeld fetched = weights_held(blocks, window);
  fetched.device = ByteCount();
  return fetched;
}

Seconds fetched_iteration(const std::vector<ServedWeights>& blocks, const Execution& execution,
                          const sim::TierGraph& tiers) {
  std::vector<sim::TierObject> objects;
  std::vector<sim::TierStep> iteration;
  for (const ServedWeights& block : blocks) {
    int object = sim::kNoObject;
    if (block.home != Tier::Device) {
      object = static_cast<int>(objects.size());
      objects.push_back({"weights", block.bytes, {{static_cast<int>(block.home), block.bytes}}});
    }
    iteration.push_back({object, to_sim_time(block.compute), {}});
  }
  // The first ones fill the window; the last one shows the others what comes behind them. Exchanges
  // of several blocks begin at another block in each until they have begun at all of them.
  const auto together = static_cast<std::size_t>(execution.fetched_together);
  const std::size_t measured = std::min(together / std::gcd(together, objects.size()),
                                        std::max<std::size_t>(1, kMostBlocks / blocks.size()));
  const std::size_t warm = kWarmRounds * measured;
  std::vector<sim::TierStep> steps;
  for (std::size_t round = 0; round < warm + measured + 1; ++round) {
    steps.insert(steps.end(), iteration.begin(), iteration.end());
  }
  const sim::TierPolicy policy{.resident = execution.gathers_in_flight,
                               .batch = execution.fetched_together};
  const sim::TierRun run =
      sim::run_tiers(tiers, static_cast<int>(Tier::Device), objects, steps, policy);
  const auto end_of = [&](std::size_t rounds) { return run.ends[rounds * blocks.size() - 1]; };
  return to_seconds(end_of(warm + measured) - end_of(warm)) / static_cast<double>(measured);
}

}  // namespace orrery::plan
