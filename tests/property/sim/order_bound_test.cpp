// SPDX-License-Identifier: Apache-2.0
// No schedule ends before the bound, and the bound is met where the slowest device never idles.
#include "sim/orders/order_bound.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "base/random.hpp"
#include "sim/orders/schedule_rule.hpp"
#include "sim/pipeline/share_costs.hpp"

namespace orrery::sim {
namespace {

SimTime makespan_of(const PipelineOrder& order, const ScheduleParams& params) {
  return evaluate_pipeline(order, stage_costs(order, params)).makespan;
}

TEST(OrderBoundProperty, NoScheduleIsShorter) {
  EXPECT_TRUE(rc::check([] {
    Random random(*rc::gen::arbitrary<std::uint64_t>());
    const auto draw = [&](std::int64_t least, std::uint64_t below) {
      return SimTime{least + static_cast<std::int64_t>(random.below(below))};
    };
    ScheduleParams params;
    params.stages = 1 + static_cast<int>(random.below(6));
    params.micro_batches = params.stages * (1 + static_cast<int>(random.below(5)));
    params.chunks = 1 + static_cast<int>(random.below(2));
    for (int s = 0; s < params.stages * params.chunks; ++s) {
      params.times.push_back({draw(1, 9), draw(1, 9), draw(0, 9), draw(0, 5), draw(0, 9)});
    }
    for (const char* name : {"1f1b", "gpipe", "zb-h1", "zb-2p", "crosspipe", "hanayo",
                             "interleaved", "zb-v", "v-half", "breadth-first", "flexpipe"}) {
      const Schedule& schedule = find_schedule(name, "test");
      if (!schedule.check(params).empty()) {
        continue;
      }
      const PipelineOrder order = schedule.order(params);
      bool cuts = false;
      for (const Pass& pass : order.passes.front()) {
        cuts = cuts || pass.kind == PassKind::WeightGrad;
      }
      const OrderBound bound(order.device_of, params, cuts);
      RC_ASSERT(bound.makespan() <= makespan_of(order, params));
      for (const std::int64_t idle : bound.idle_within(bound.makespan())) {
        RC_ASSERT(idle >= 0);
      }
    }
  }));
}

// Under a cap a description without warm_up begins no more micro-batches before the first result
// comes back.
TEST(OrderBoundProperty, NoRunUnderACapIsShorter) {
  EXPECT_TRUE(rc::check([] {
    Random random(*rc::gen::arbitrary<std::uint64_t>());
    ScheduleParams params;
    params.stages = 1 + static_cast<int>(random.below(6));
    params.chunks = 1 + static_cast<int>(random.below(3));
    params.micro_batches = 1 + static_cast<int>(random.below(20));
    const auto draw = [&](std::int64_t least) {
      return SimTime{least + static_cast<std::int64_t>(random.below(9))};
    };
    for (int s = 0; s < params.stages * params.chunks; ++s) {
      params.times.push_back({draw(1), draw(1), draw(0), draw(0)});
    }
    const int cap = 1 + static_cast<int>(random.below(8));
    const bool loop = params.chunks == 1 || random.below(2) == 0;
    const ScheduleDescription rule{.placement = loop ? Placement::Loop : Placement::Zigzag,
                                   .depth_first = random.below(2) == 0,
                                   .split_backward = random.below(2) == 0,
                                   .cap = static_cast<double>(cap)};
    const PipelineOrder order = run_rule(rule, params, "test");
    const OrderBound bound(order.device_of, params, rule.split_backward, cap);
    RC_ASSERT(bound.makespan() <= makespan_of(order, params));
  }));
}

// Forwards take 2, gradients 3 and 3, transfers 1; the last of four stages takes twice as long.
TEST(OrderBound, IsMetWhereTheSlowestDeviceNeverIdles) {
  ScheduleParams params{4, 32, 1, 0};
  params.times.assign(4, {SimTime{2}, SimTime{3}, SimTime{3}, SimTime{1}});
  params.times.back() = {SimTime{4}, SimTime{6}, SimTime{6}, SimTime{1}};
  const PipelineOrder whole = find_schedule("1f1b", "test").order(params);
  const OrderBound of_whole(whole.device_of, params, false);
  EXPECT_EQ(of_whole.makespan().ps, 3 * (2 + 1) + 32 * 16 + 3 * (6 + 1));
  EXPECT_EQ(makespan_of(whole, params), of_whole.makespan());
  const PipelineOrder cut = find_schedule("zb-h1", "test").order(params);
  const OrderBound of_cut(cut.device_of, params, true);
  EXPECT_EQ(of_cut.makespan().ps, 3 * (2 + 1) + 32 * 16);
  EXPECT_EQ(makespan_of(cut, params), of_cut.makespan());
  EXPECT_EQ(of_cut.idle_within(SimTime{1000}).back(), 1000 - 32 * 16);
}

}  // namespace
}  // namespace orrery::sim
