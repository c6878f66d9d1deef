// SPDX-License-Identifier: Apache-2.0
#include "search/per_block/draft.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "plan/slices.hpp"
#include "plan/stage/memory.hpp"
#include "search/per_block/cuts.hpp"

namespace orrery::search {

namespace {

constexpr std::size_t kMostCandidates = 8;  // strategies that the dynamic program chooses from
constexpr std::size_t kMostUsual = 2;       // of them, that whole plans are made of
constexpr double kLeastUse = 0.5;           // blocks of a strategy that is used

// Positions per stage: borders where the sums of fractions are nearest, none empty.
std::vector<int> rounded_cut(const Shares& shares, int positions) {
  const std::size_t stages = shares.blocks.size();
  std::vector<int> cut(stages);
  double sum = 0;
  int begin = 0;
  for (std::size_t stage = 0; stage < stages; ++stage) {
    for (const auto& of_block : shares.blocks[stage]) {
      sum = std::accumulate(of_block.begin(), of_block.end(), sum);
    }
    const int left = static_cast<int>(stages - stage) - 1;
    const int border = stage + 1 == stages ? positions : static_cast<int>(std::lround(sum));
    const int end = std::clamp(border, begin + 1, positions - left);
    cut[stage] = end - begin;
    begin = end;
  }
  return cut;
}

struct Use {
  double blocks = 0;  // in all stages
  std::uint16_t strategy = 0;
};

// Of strategies that every block may take, most used first.
std::vector<Use> uses_of(const MeshCosts& costs, const Shares& shares) {
  std::vector<Use> uses;
  for (const std::uint16_t strategy : costs.shared) {
    double sum = 0;
    for (const auto& of_stage : shares.blocks) {
      for (std::size_t block = 0; block < of_stage.size(); ++block) {
        for (std::size_t index = 0; index < of_stage[block].size(); ++index) {
          sum += costs.choices[block][index].strategy == strategy ? of_stage[block][index] : 0.0;
        }
      }
    }
    uses.push_back({sum, strategy});
  }
  std::stable_sort(uses.begin(), uses.end(),
                   [](const Use& a, const Use& b) { return a.blocks > b.blocks; });
  return uses;
}

std::vector<std::uint16_t> most_used(const MeshCosts& costs, const Shares& shares) {
  std::vector<std::uint16_t> result;
  for (const Use& use : uses_of(costs, shares)) {
    if (result.size() < kMostCandidates) {
      result.push_back(use.strategy);
    }
  }
  return result;
}

}  // namespace

Drafter::Drafter(const PerBlockSpace& space, plan::Simulator& simulator, plan::BlockCosts& costs)
    : space_(space), simulator_(simulator), costs_(costs), plan_(space.homogeneous().base()) {}

std::vector<std::uint16_t> Drafter::used(const MeshCosts& costs, const Shares& shares) {
  std::vector<std::uint16_t> result;
  for (const Use& use : uses_of(costs, shares)) {
    if (use.blocks >= kLeastUse) {
      result.push_back(use.strategy);
    }
  }
  return result;
}

void Drafter::leave_free(ByteCount margin) {
  plan_.memory_reserve = space_.homogeneous().base().memory_reserve + margin;
}

bool Drafter::Score::operator<(const Score& other) const {
  if (fits != other.fits) {
    return fits;
  }
  return fits ? time < other.time : excess < other.excess;
}

std::optional<Draft> Drafter::round(const StageMesh& mesh, const Pipeline& pipeline,
                                    const MeshCosts& costs, const Shares& shares) {
  const int positions = static_cast<int>(plan_.network.chain.size());
  const std::vector<std::uint16_t> candidates = most_used(costs, shares);
  if (candidates.empty()) {
    return std::nullopt;
  }
  std::vector<std::vector<int>> cuts = {space_.first_cut(mesh, pipeline)};
  if (!space_.has_fixed_cut()) {
    cuts.push_back(rounded_cut(shares, positions));
    for (std::vector<int>& cut : likely_cuts(positions, mesh.pp, pipeline.chunks)) {
      cuts.push_back(std::move(cut));
    }
  }
  const std::vector<std::uint16_t> alike(static_cast<std::size_t>(positions), candidates.front());
  space_.configure(mesh, pipeline, costs.strategies, {cuts.front(), alike}, plan_);
  const Switches switches = switch_costs(mesh, costs, candidates);
  const Switches none(switches.size(), 0.0);  // stages of one block change their layout for nothing
  FittedDevices fitted_devices;
  std::optional<Draft> best;
  Score least;
  const auto consider = [&](Draft draft) {
    const Score now = score(mesh, pipeline, costs, draft, least.limit());
    if (!best || now < least) {
      least = now;
      best = std::move(draft);
    }
  };
  for (const std::vector<int>& cut : cuts) {
    for (const Switches* change : {&switches, &none}) {
      consider(fitted(mesh, pipeline, costs, candidates, cut, *change, fitted_devices));
    }
    for (const std::uint16_t candidate : candidates) {
      consider({cut, std::vector<std::uint16_t>(static_cast<std::size_t>(positions), candidate)});
    }
  }
  for (std::size_t usual = 0; usual < std::min(kMostUsual, candidates.size()); ++usual) {
    for (const std::uint16_t smaller : candidates) {
      for (int chunk = 0; smaller != candidates[usual] && chunk < pipeline.chunks; ++chunk) {
        const auto draft =
            relieved(mesh, pipeline, costs, cuts.front(), candidates[usual], smaller, chunk);
        if (draft) {
          consider(*draft);
        }
      }
    }
  }
  return best;
}

std::optional<Draft> Drafter::relieved(const StageMesh& mesh, const Pipeline& pipeline,
                                       const MeshCosts& costs, const std::vector<int>& cut,
                                       std::uint16_t usual, std::uint16_t smaller, int chunk) {
  const auto devices = static_cast<std::size_t>(mesh.pp);
  Lists lists;
  for (const int count : cut) {
    lists.emplace_back(static_cast<std::size_t>(count), usual);
  }
  const ByteCount capacity = plan_.cluster.gpu.memory - plan_.memory_reserve;
  for (int step = 0; step <= pipeline.chunks; ++step) {
    Draft draft{cut, {}};
    for (const auto& list : lists) {
      draft.strategies.insert(draft.strategies.end(), list.begin(), list.end());
    }
    space_.configure(mesh, pipeline, costs.strategies, draft, plan_);
    const std::vector<plan::StageMemory> memory = simulator_.memory(plan_);
    const auto begin = static_cast<std::size_t>((chunk + step) % pipeline.chunks) * devices;
    bool fits = true;
    for (std::size_t stage = begin; stage < begin + devices; ++stage) {
      const std::size_t device = pipeline.placement.device_of[stage];
      if (memory[device].total() > capacity) {
        fits = false;
        std::fill(lists[stage].begin(), lists[stage].end(), smaller);
      }
    }
    if (fits) {
      return step > 0 ? std::optional(draft) : std::nullopt;
    }
  }
  return std::nullopt;
}

Draft draft_of(const plan::Plan& plan, const MeshCosts& costs) {
  const std::vector<plan::BlockPlan>& all = costs.strategies;
  const auto strategy = std::find(all.begin(), all.end(), plan.blocks.front().layout);
  return {plan.stage_blocks, std::vector(plan.network.chain.size(),
                                         static_cast<std::uint16_t>(strategy - all.begin()))};
}

// Of plan_.
plan::MemoryVerdict Drafter::memory_verdict() {
  if (free_.empty()) {
    return simulator_.fits(plan_);
  }
  const std::vector<plan::StageMemory> memory = simulator_.memory(plan_);
  plan::MemoryVerdict verdict = plan::memory_verdict(plan_, memory);
  const ByteCount capacity = plan_.cluster.gpu.memory - plan_.memory_reserve;
  for (std::size_t device = 0; device < std::min(free_.size(), memory.size()); ++device) {
    const ByteCount excess = memory[device].total() + free_[device] - capacity;
    verdict.excess = std::max(verdict.excess, excess);
    verdict.fits = verdict.fits && excess <= ByteCount();
  }
  return verdict;
}

Drafter::Score Drafter::score(const StageMesh& mesh, const Pipeline& pipeline,
                              const MeshCosts& costs, const Draft& draft,
                              std::optional<Seconds> limit) {
  space_.configure(mesh, pipeline, costs.strategies, draft, plan_);
  Score score;
  if (pipeline.slices > 1 && !plan::slices_problem(plan_).empty()) {
    score.excess = plan_.cluster.gpu.memory;
    return score;
  }
  const plan::MemoryVerdict verdict = memory_verdict();
  score.fits = verdict.fits;
  score.excess = verdict.excess;
  if (verdict.fits && limit) {
    score.time = simulator_.lower_bound(plan_);
  }
  if (verdict.fits && (!limit || score.time <= *limit)) {
    ++simulated_;
    last_ = simulator_.run(plan_);
    score.time = last_.iteration_time;
  }
  return score;
}

}  // namespace orrery::search
