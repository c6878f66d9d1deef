// SPDX-License-Identifier: Apache-2.0
// A plain V pattern takes as long without its lists as with them, or no less than the limit.
#include "sim/orders/v_search.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <vector>

#include "base/random.hpp"
#include "sim/pipeline/share_costs.hpp"

namespace orrery::sim {
namespace {

TEST(VSearchProperty, MakespanOfPlainPatterns) {
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
      const PipelineOrder order = v_pattern(params, blocks, false);
      const SimTime makespan = evaluate_pipeline(order, stage_costs(order, params)).makespan;
      for (const SimTime limit : {SimTime{1}, makespan - SimTime{1}, makespan, makespan * 2}) {
        RC_ASSERT(plain_v_makespan(params, blocks, limit) == std::min(makespan, limit));
      }
    }
  }));
}

}  // namespace
}  // namespace orrery::sim
