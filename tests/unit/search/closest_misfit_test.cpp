// SPDX-License-Identifier: Apache-2.0
// When nothing fits: some plans miss by categories, others fit by them and miss when they are
// replayed. What is told is the plan that needs least of either kind.
#include <gtest/gtest.h>

#include <limits>
#include <optional>

#include "search/problem.hpp"
#include "search/tree/memory_check.hpp"
#include "tests/unit/search/small_search.hpp"

namespace orrery::search {
namespace {

ByteCount needed_beyond(const plan::Plan& plan, const plan::MemoryVerdict& counted) {
  return replayed_misfit(plan, counted, ByteCount(), 1).excess;
}

TEST(ClosestMisfit, IsTheOneThatNeedsLeastOfBothKinds) {
  Problem problem;
  problem.network = "gpt2-xl";
  problem.cluster = "dgx-a100:1";
  problem.batch = 4;
  problem.sequence = 1024;
  problem.settings = {"layers=2", "node.gpus=4", "gpu.memory=3GiB"};
  const plan::Plan base = base_plan(problem);
  Options options;
  options.jobs = 1;
  options.constraints.choose_schedule("1f1b");
  const Outcome nothing = search(base, options);
  ASSERT_FALSE(nothing.best);
  ASSERT_TRUE(nothing.closest);
  EXPECT_FALSE(nothing.closest_by_categories);  // some plans fit by them
  ByteCount least(std::numeric_limits<std::int64_t>::max());
  std::optional<plan::Plan> by_categories;
  enumerate(base, options.constraints,
            [&](const plan::Plan& plan, const plan::Simulation&, plan::Simulator& simulator) {
              const plan::MemoryVerdict counted = simulator.fits(plan);
              if (!counted.fits && counted.excess < least) {
                least = counted.excess;
                by_categories = plan;
              }
            });
  ASSERT_TRUE(by_categories);
  plan::Simulator simulator(base);
  const ByteCount told = needed_beyond(*nothing.closest, simulator.fits(*nothing.closest));
  EXPECT_LT(told, needed_beyond(*by_categories, simulator.fits(*by_categories)));
  plan::Plan larger = *nothing.closest;
  larger.cluster.gpu.memory = larger.cluster.gpu.memory + told;
  EXPECT_TRUE(fits_replayed(larger));
}

}  // namespace
}  // namespace orrery::search
