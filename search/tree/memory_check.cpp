// SPDX-License-Identifier: Apache-2.0
#include "search/tree/memory_check.hpp"

#include <algorithm>

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

namespace {

ByteCount fullest_of(const std::vector<plan::StageMemory>& counted) {
  ByteCount fullest;
  for (const plan::StageMemory& stage : counted) {
    fullest = std::max(fullest, stage.total());
  }
  return fullest;
}

}  // namespace

plan::MemoryVerdict replay_verdict(plan::Plan plan, plan::Simulator& simulator, ByteCount reserve,
                                   int jobs) {
  if (surely_fits(fullest_of(simulator.memory(plan)), plan.cluster.gpu.memory - reserve)) {
    return {};
  }
  plan.memory_reserve = reserve;
  return plan::replayed_verdict(plan, plan::replay_memory(plan, {}, jobs));
}

plan::MemoryVerdict replayed_misfit(plan::Plan plan, plan::MemoryVerdict counted, ByteCount reserve,
                                    int jobs) {
  // On a full card the allocator gives back what it keeps, so that what a plan misses there is not
  // what it needs, and without an end it keeps all: cards grow by what is missed until one will do.
  constexpr int kCards = 12;
  constexpr ByteCount kEndless(std::int64_t{1} << 50);
  plan.memory_reserve = reserve;
  plan::Plan larger = plan;
  larger.cluster.gpu.memory = plan.cluster.gpu.memory + counted.excess;
  std::vector<plan::MemoryPeak> peaks = plan::replay_memory(larger, {}, jobs);
  plan::MemoryVerdict missed = plan::replayed_verdict(larger, peaks);
  for (int card = 1; !missed.fits; ++card) {
    larger.cluster.gpu.memory =
        card < kCards ? larger.cluster.gpu.memory + missed.excess : kEndless;
    peaks = plan::replay_memory(larger, {}, jobs);
    missed = plan::replayed_verdict(larger, peaks);
  }
  const plan::MemoryVerdict replayed = plan::replayed_verdict(plan, peaks);
  if (replayed.excess > counted.excess) {
    counted.excess = replayed.excess;
    counted.text += (counted.text.empty() ? "" : "; ") + replayed.text;
  }
  return counted;
}

bool replay_fits(plan::Plan plan, const std::vector<plan::StageMemory>& counted, ByteCount reserve,
                 int jobs) {
  if (surely_fits(fullest_of(counted), plan.cluster.gpu.memory - reserve)) {
    return true;
  }
  plan.memory_reserve = reserve;
  return plan::replay_fits(plan, jobs);
}

}  // namespace orrery::search
