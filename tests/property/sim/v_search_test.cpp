// SPDX-License-Identifier: Apache-2.0
// Blocks within a bound are patterns within it, whatever the passes take.
#include "sim/orders/v_search.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <vector>

#include "base/random.hpp"
#include "sim/pipeline/share_costs.hpp"

namespace orrery::sim {
namespace {

TEST(VSearchProperty, PatternsKeepWithinTheirBound) {
  EXPECT_TRUE(rc::check([] {
    Random random(*rc::gen::arbitrary<std::uint64_t>());
    const auto draw = [&](std::int64_t least) {
      return SimTime{least + static_cast<std::int64_t>(random.below(9))};
    };
    ScheduleParams params;
    params.stages = 1 + static_cast<int>(random.below(12));
    params.micro_batches = 1 + static_cast<int>(random.below(40));
    params.chunks = 2;
    for (int s = 0; s < 2 * params.stages; ++s) {
      params.times.push_back({draw(1), draw(1), draw(0), draw(0), SimTime{0}});
    }
    const int least = least_v_peak(params.stages);
    const int peak = least + static_cast<int>(random.below(static_cast<std::uint64_t>(3 * least)));
    for (const std::vector<VBlock>& blocks : v_blocks_within(params.stages, peak, 3)) {
      for (const bool reorder : {false, true}) {
        const PipelineOrder order = v_pattern(params, blocks, reorder);
        const PipelineResult run = evaluate_pipeline(order, stage_costs(order, params));
        RC_ASSERT(2 * largest_peak(order, run) <= peak);
      }
    }
  }));
}

}  // namespace
}  // namespace orrery::sim
