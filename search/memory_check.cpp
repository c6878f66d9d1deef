// SPDX-License-Identifier: Apache-2.0
#include "search/memory_check.hpp"

#include <algorithm>

#include "plan/memory_replay.hpp"

namespace orrery::search {

namespace {

// Of the card. Of 240 random plans of GPT-3 175B and Llama-3-70B the replay of those with less than
// 100 sequences in a micro-batch took at most 1.34 times their categories; it is not a bound.
constexpr double kSafeShare = 0.7;

}  // namespace

plan::MemoryVerdict MemoryCheck::operator()(plan::Plan plan, plan::Simulator& simulator) const {
  ByteCount counted;
  for (const plan::StageMemory& stage : simulator.memory(plan)) {
    counted = std::max(counted, stage.total());
  }
  plan.memory_reserve = reserve_;
  const ByteCount capacity = plan.cluster.gpu.memory - reserve_;
  if (static_cast<double>(counted.value()) <= kSafeShare * static_cast<double>(capacity.value())) {
    return {};
  }
  return plan::replayed_verdict(plan, plan::replay_memory(plan, {}, jobs_));
}

}  // namespace orrery::search
