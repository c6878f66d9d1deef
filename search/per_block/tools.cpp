// SPDX-License-Identifier: Apache-2.0
#include "search/per_block/tools.hpp"

#include <utility>

namespace orrery::search {

namespace {

constexpr int kAttempts = 10;  // of a draft that must leave more memory free
constexpr int kMostAgain = 3;  // searches of the neighbours of what would be the best plan

}  // namespace

std::optional<DraftResult> PerBlockTools::drafted(const PerBlockSpace& space,
                                                  const DraftOrigin& origin, const DraftAim& aim) {
  const auto& [mesh, pipeline, costs, shares] = origin;
  std::optional<DraftResult> result;
  ByteCount margin;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    drafter.leave_free(margin);
    const auto first = drafter.round(mesh, pipeline, costs, shares);
    if (!first) {
      break;
    }
    DraftResult now = drafter.improve(mesh, pipeline, costs, *first, 0);
    if (now.fits && now.time.value() < aim.promising) {
      now = drafter.improve(mesh, pipeline, costs, *first, aim.budget());
    }
    bool goes_on = now.fits && now.time.value() < aim.best;
    for (int again = 0; again < kMostAgain && goes_on; ++again) {
      const std::int64_t before = now.simulated;
      const Seconds time = now.time;
      now = drafter.improve(mesh, pipeline, costs, std::move(now.draft), aim.budget(),
                            Drafter::Moves::Any);
      now.simulated += before;
      goes_on = now.time < time;
    }
    now.simulated += result ? result->simulated : 0;
    result = std::move(now);
    if (!result->fits || result->time.value() >= aim.best) {
      break;
    }
    plan::Plan plan = space.homogeneous().base();
    space.configure(mesh, pipeline, costs.strategies, result->draft, plan);
    const plan::MemoryVerdict verdict = aim.replay(plan);
    if (verdict.fits) {
      break;
    }
    margin += verdict.excess;
  }
  drafter.leave_free(ByteCount());
  return result;
}

}  // namespace orrery::search
