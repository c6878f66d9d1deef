// SPDX-License-Identifier: Apache-2.0
#include "search/per_block/tools.hpp"

#include <algorithm>
#include <utility>

namespace orrery::search {

namespace {

constexpr int kAttempts = 10;     // of a draft that must leave more memory free
constexpr int kMostAnnealed = 4;  // attempts to find one that fits when it is replayed
constexpr int kMostAgain = 3;     // searches of the neighbours of what would be the best plan

}  // namespace

namespace {

bool is_best(const DraftResult& draft, const DraftAim& aim) {
  return draft.fits && draft.time.value() < aim.best;
}

plan::Plan plan_of(const Draft& draft, const PerBlockSpace& space, const DraftOrigin& origin) {
  plan::Plan plan = space.homogeneous().base();
  space.configure(origin.mesh, origin.pipeline, origin.costs.strategies, draft, plan);
  return plan;
}

// How much its memory misses when it is replayed.
ByteCount missed_by(const Draft& draft, const PerBlockSpace& space, const DraftOrigin& origin,
                    const DraftAim& aim) {
  const plan::MemoryVerdict verdict = aim.replay(plan_of(draft, space, origin));
  return verdict.fits ? ByteCount() : verdict.excess;
}

}  // namespace

std::optional<DraftResult> PerBlockTools::drafted(const PerBlockSpace& space,
                                                  const DraftOrigin& origin, const DraftAim& aim) {
  const auto& [mesh, pipeline, costs, shares] = origin;
  std::optional<DraftResult> result;
  std::optional<DraftResult> fitting;  // when replayed; what is made of it may not
  std::int64_t simulated = 0;
  ByteCount margin;
  ByteCount missed;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    margin += missed;
    drafter.leave_free(margin);
    const auto first = drafter.round(mesh, pipeline, costs, shares);
    if (!first) {
      break;
    }
    DraftResult now = drafter.improve(mesh, pipeline, costs, *first, 0);
    if (now.fits && now.time.value() < aim.promising) {
      now = drafter.improve(mesh, pipeline, costs, *first, aim.budget());
    }
    simulated += now.simulated;
    missed = is_best(now, aim) ? missed_by(now.draft, space, origin, aim) : ByteCount();
    const bool goes_on = is_best(now, aim) && missed == ByteCount();  // neighbours miss as much
    if (goes_on && (!fitting || now.time < fitting->time)) {
      fitting = now;
    }
    for (int again = 0; again < kMostAgain && goes_on; ++again) {
      const Seconds time = now.time;
      now = drafter.improve(mesh, pipeline, costs, std::move(now.draft), aim.budget(),
                            Drafter::Moves::Any);
      simulated += now.simulated;
      if (now.time >= time) {
        break;
      }
    }
    if (goes_on) {
      missed = missed_by(now.draft, space, origin, aim);
    }
    result = std::move(now);
    result->simulated = simulated;
    if (missed == ByteCount()) {
      break;
    }
  }
  drafter.leave_free(ByteCount());
  if (fitting && (missed != ByteCount() || !result->fits || fitting->time < result->time)) {
    result = std::move(fitting);
    result->simulated = simulated;
    missed = ByteCount();
  }
  return result;
}

namespace {

// Of each device, how much more it takes when it is replayed than its categories say, at most.
void raise_margins(const plan::Plan& plan, plan::Simulator& simulator, const DraftAim& aim,
                   std::vector<ByteCount>& margins) {
  const std::vector<ByteCount> peaks = aim.peaks(plan);
  const std::vector<plan::StageMemory> memory = simulator.memory(plan);
  margins.resize(std::min(peaks.size(), memory.size()));
  for (std::size_t device = 0; device < margins.size(); ++device) {
    margins[device] = std::max(margins[device], peaks[device] - memory[device].total());
  }
}

// Strategies of the fractions, and those of the draft.
std::vector<std::uint16_t> candidates_of(const DraftOrigin& origin, const Draft& draft) {
  std::vector<std::uint16_t> candidates = Drafter::used(origin.costs, origin.shares);
  for (const std::uint16_t strategy : draft.strategies) {
    if (std::find(candidates.begin(), candidates.end(), strategy) == candidates.end()) {
      candidates.push_back(strategy);
    }
  }
  return candidates;
}

}  // namespace

DraftResult PerBlockTools::annealed(const PerBlockSpace& space, const DraftOrigin& origin,
                                    const DraftAim& aim, Draft draft, std::uint64_t seed) {
  const auto& [mesh, pipeline, costs, shares] = origin;
  const std::vector<std::uint16_t> candidates = candidates_of(origin, draft);
  DraftResult result{draft, false, {}, {}, 0};
  if (missed_by(draft, space, origin, aim) != ByteCount()) {
    return result;
  }
  std::int64_t simulated = 0;
  std::vector<ByteCount> margins;
  for (int attempt = 0; attempt < kMostAnnealed; ++attempt) {
    raise_margins(plan_of(draft, space, origin), simulator, aim, margins);
    drafter.leave_free_on_each(margins);
    DraftResult next = drafter.anneal(mesh, pipeline, costs, std::move(draft), candidates, seed,
                                      [&] { return aim.budget() == 0; });
    simulated += next.simulated;
    const bool gains = is_best(next, aim);
    const ByteCount missed = missed_by(next.draft, space, origin, aim);
    if (!gains || missed == ByteCount()) {
      if (gains) {
        result = std::move(next);
      }
      break;
    }
    draft = std::move(next.draft);
  }
  drafter.leave_free_on_each({});
  result.simulated = simulated;
  return result;
}

}  // namespace orrery::search
