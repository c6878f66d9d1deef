// SPDX-License-Identifier: Apache-2.0
#include "search/tree/memory_check.hpp"

#include <algorithm>
#include <utility>

#include "plan/replay/memory_replay.hpp"

namespace orrery::search {

namespace {

// Of the card. Of 240 random plans of GPT-3 175B and Llama-3-70B the replay of those with less than
// 100 sequences in a micro-batch took at most 1.34 times their categories; it is not a bound.
constexpr double kSafeShare = 0.7;

}  // namespace

bool surely_fits(ByteCount counted, ByteCount capacity) {
  return static_cast<double>(counted.value()) <= kSafeShare * static_cast<double>(capacity.value());
}

plan::MemoryVerdict replay_verdict(plan::Plan plan, plan::Simulator& simulator, ByteCount reserve,
                                   int jobs) {
  const std::vector<plan::StageMemory> counted = simulator.memory(plan);
  return replay_verdict(std::move(plan), counted, reserve, jobs);
}

plan::MemoryVerdict replay_verdict(plan::Plan plan, const std::vector<plan::StageMemory>& counted,
                                   ByteCount reserve, int jobs) {
  ByteCount fullest;
  for (const plan::StageMemory& stage : counted) {
    fullest = std::max(fullest, stage.total());
  }
  plan.memory_reserve = reserve;
  const ByteCount capacity = plan.cluster.gpu.memory - reserve;
  if (surely_fits(fullest, capacity)) {
    return {};
  }
  return plan::replayed_verdict(plan, plan::replay_memory(plan, {}, jobs));
}

}  // namespace orrery::search
