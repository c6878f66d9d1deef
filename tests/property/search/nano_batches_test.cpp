// SPDX-License-Identifier: Apache-2.0
// Nano-batches of random layers: orders between their bounds, shares between theirs.
#include "search/problems/nano_batches.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <array>

namespace orrery::search {
namespace {

// A chain of up to four operations.
NanoProblem any_chain() {
  NanoProblem problem;
  problem.tokens = 256;
  const int count = *rc::gen::inRange(1, 5);
  for (int index = 0; index < count; ++index) {
    NanoProblem::Operation operation;
    operation.name = std::to_string(index);
    operation.kind = *rc::gen::inRange<std::size_t>(0, sim::kSharingClasses);
    operation.time = *rc::gen::inRange(1, 20);
    if (index > 0) {
      operation.after = {index - 1};
    }
    problem.operations.push_back(operation);
  }
  return problem;
}

struct Loads {
  std::array<double, sim::kSharingClasses> by_class{};
  double all = 0;
};
Loads loads_of(const NanoProblem& problem) {
  Loads loads;
  for (const auto& operation : problem.operations) {
    loads.by_class[operation.kind] += operation.time;
    loads.all += operation.time;
  }
  return loads;
}

// At least the busiest class and the chain of one half, at most everything in turn.
TEST(NanoBatchesProperty, PeriodsStandBetweenTheirBounds) {
  EXPECT_TRUE(rc::check([] {
    const NanoProblem problem = any_chain();
    const Loads loads = loads_of(problem);
    const auto ordered = NanoBatches(problem, 128).order();
    RC_ASSERT(!ordered.empty());
    const double busiest = *std::max_element(loads.by_class.begin(), loads.by_class.end());
    RC_ASSERT(ordered.front().period >= std::max(busiest, loads.all / 2) * (1 - 1e-6));
    RC_ASSERT(ordered.front().period <= loads.all * (1 + 1e-6));
  }));
}

TEST(NanoBatchesProperty, SharesStandBetweenTheirBounds) {
  EXPECT_TRUE(rc::check([] {
    const NanoProblem problem = any_chain();
    const Loads loads = loads_of(problem);
    const NanoBatches planning(problem, 128);
    const auto shared = planning.share(planning.order().front(), sim::measured_curves());
    const double bound = sim::nano_batch_sharing()
                             .time({Seconds(loads.by_class[0]), Seconds(loads.by_class[1]),
                                    Seconds(loads.by_class[2])})
                             .value();
    RC_ASSERT(shared.period >= bound * (1 - 1e-6));
    RC_ASSERT(shared.period <= loads.all * (1 + 1e-6));
  }));
}

}  // namespace
}  // namespace orrery::search
