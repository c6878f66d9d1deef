// SPDX-License-Identifier: Apache-2.0
#include "search/per_block/tools.hpp"

#include <utility>

namespace orrery::search {

namespace {

constexpr int kAttempts = 10;  // of a draft that must leave more memory free
constexpr int kMostAgain = 3;  // searches of the neighbours of what would be the best plan

}  // namespace

namespace {

bool is_best(const DraftResult& draft, const DraftAim& aim) {
  return draft.fits && draft.time.value() < aim.best;
}

// How much its memory misses when it is replayed.
ByteCount missed_by(const Draft& draft, const PerBlockSpace& space, const DraftOrigin& origin,
                    const DraftAim& aim) {
  plan::Plan plan = space.homogeneous().base();
  space.configure(origin.mesh, origin.pipeline, origin.costs.strategies, draft, plan);
  const plan::MemoryVerdict verdict = aim.replay(plan);
  return verdict.fits ? ByteCount() : verdict.excess;
}

}  // namespace

std::optional<DraftResult> PerBlockTools::drafted(const PerBlockSpace& space,
                                                  const DraftOrigin& origin, const DraftAim& aim) {
  const auto& [mesh, pipeline, costs, shares] = origin;
  std::optional<DraftResult> result;
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
  return result;
}

}  // namespace orrery::search
