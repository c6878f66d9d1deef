// SPDX-License-Identifier: Apache-2.0
#include "sim/schedule.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/error.hpp"
#include "sim/pipeline/share_costs.hpp"

namespace orrery::sim {
namespace {

using testing::HasSubstr;

// "F0" is the forward of micro-batch 0; a second chunk and above is marked "F0.1".
std::string list_text(const std::vector<Pass>& list, int stages) {
  std::string text;
  for (const Pass& pass : list) {
    text += text.empty() ? "" : " ";
    text += pass.kind == PassKind::Forward ? 'F' : 'B';
    text += std::to_string(pass.micro_batch);
    if (pass.virtual_stage >= stages) {
      text += '.' + std::to_string(pass.virtual_stage / stages);
    }
  }
  return text;
}

PipelineOrder named_order(const char* name, const ScheduleParams& params) {
  return find_schedule(name, "test").order(params);
}

TEST(Schedule, UnknownNameSuggestsTheNearest) {
  try {
    find_schedule("gpip", "--schedule");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("--schedule: unknown pipeline schedule \"gpip\""));
    EXPECT_THAT(error.what(), HasSubstr("gpipe"));
  }
}

TEST(Schedule, Gpipe) {
  const PipelineOrder order = named_order("gpipe", {2, 3, 1, 0});
  EXPECT_EQ(list_text(order.passes[0], 2), "F0 F1 F2 B0 B1 B2");
  EXPECT_EQ(order.passes[1].front().virtual_stage, 1);
}

TEST(Schedule, OneForwardOneBackward) {
  const PipelineOrder order = named_order("1f1b", {3, 4, 1, 0});
  EXPECT_EQ(list_text(order.passes[0], 3), "F0 F1 F2 B0 F3 B1 B2 B3");
  EXPECT_EQ(list_text(order.passes[1], 3), "F0 F1 B0 F2 B1 F3 B2 B3");
  EXPECT_EQ(list_text(order.passes[2], 3), "F0 B0 F1 B1 F2 B2 F3 B3");
}

TEST(Schedule, OneForwardOneBackwardWithDoubledWarmUp) {
  const PipelineOrder order = named_order("1f1b", {2, 4, 1, 1});
  EXPECT_EQ(list_text(order.passes[0], 2), "F0 F1 F2 B0 F3 B1 B2 B3");
  EXPECT_EQ(list_text(order.passes[1], 2), "F0 B0 F1 B1 F2 B2 F3 B3");
}

TEST(Schedule, Interleaved) {
  const PipelineOrder order = named_order("interleaved", {2, 4, 2, 0});
  EXPECT_EQ(list_text(order.passes[0], 2),
            "F0 F1 F0.1 F1.1 F2 B0.1 F3 B1.1 F2.1 B0 F3.1 B1 B2.1 B3.1 B2 B3");
  EXPECT_EQ(list_text(order.passes[1], 2),
            "F0 F1 F0.1 B0.1 F1.1 B1.1 F2 B0 F3 B1 F2.1 B2.1 F3.1 B3.1 B2 B3");
  EXPECT_THAT(order.device_of, testing::ElementsAre(0, 1, 0, 1));
}

TEST(Schedule, BreadthFirst) {
  const PipelineOrder order = named_order("breadth-first", {2, 2, 2, 0});
  EXPECT_EQ(list_text(order.passes[0], 2), "F0 F1 F0.1 F1.1 B0.1 B1.1 B0 B1");
}

TEST(Schedule, ConstraintsAreNamed) {
  EXPECT_THAT(to_text(find_schedule("1f1b", "").check({4, 8, 2, 0})), HasSubstr("one model chunk"));
  EXPECT_THAT(to_text(find_schedule("interlaced", "").check({4, 8, 9, 0})),
              HasSubstr("set chunks to 2"));
  EXPECT_THAT(to_text(find_schedule("1f1b", "").check({4, 8, 1, 2})), HasSubstr("warm-up"));
  EXPECT_THAT(to_text(find_schedule("gpipe", "").check({4, 8, 1, 1})), HasSubstr("warm-up"));
  ScheduleParams capped{4, 8, 1, 0};
  capped.cap = 0.5;
  EXPECT_THAT(to_text(find_schedule("1f1b", "").check(capped)), HasSubstr("set the cap to 1"));
  EXPECT_THAT(to_text(find_schedule("interleaved", "").check({4, 6, 2, 0})),
              HasSubstr("multiple of stages"));
  EXPECT_THAT(to_text(find_schedule("gpipe", "").check({4, 0, 1, 0})), HasSubstr("at least 1"));
  EXPECT_THAT(to_text(find_schedule("breadth-first", "").check({40'000, 1, 2, 0})),
              HasSubstr("at most"));
  EXPECT_THAT(to_text(find_schedule("gpipe", "").check({1000, 50'000, 1, 0})),
              HasSubstr("at most"));
}

// Passes cut into many parts count times in as many, which must not leave the range of times.
TEST(Schedule, TimesThatNoRunCouldTakeAreRefused) {
  ScheduleParams params{64, 5, 4, 0};
  params.slices = 64;
  params.times = {{SimTime{1'000'000'000'000}, SimTime{1'000'000'000'000},
                   SimTime{7'000'000'000'000}, SimTime{100'000'000'000'000}}};
  try {
    (void)find_schedule("slimpipe-vocab", "test").order(params);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("104 days"));
  }
}

// What passes wait for many edges is bounded by the longest of each: no false refusal.
TEST(Schedule, ManyEdgesDoNotLeaveTheRangeOfTimes) {
  const SimTime second{1'000'000'000'000};
  struct EdgeCase {
    const char* name;
    ScheduleParams params;
    PassTimes times;
  };
  for (const auto& [name, params, times] :
       {EdgeCase{"vocab-1", {32, 64, 1, 0}, {second * 100, second, second, second * 5}},
        EdgeCase{
            "slimpipe-vocab", {16, 2, 6, 0, 16}, {second * 5, second * 5, second * 5, second * 2}},
        EdgeCase{"nestpipe", {32, 64, 1, 0}, {second * 100, second, second, second * 5}}}) {
    ScheduleParams timed = params;
    timed.times = {times};
    in_lowest_terms(timed.times);
    const PipelineOrder order = find_schedule(name, "test").order(timed);
    const ShareCosts costs = share_costs(order, times);
    EXPECT_GT(evaluate_pipeline(order, costs.costs).makespan, SimTime{}) << name;
  }
}

// Passes of a second cut into 12,288 parts: the parts count in a unit in which the run is in range.
TEST(Schedule, PartsOfUnitPassesStayInRange) {
  ScheduleParams params{64, 12, 3, 0};
  params.slices = 64;
  const SimTime second{1'000'000'000'000};
  params.times = {{second, second, second, SimTime{}}};
  in_lowest_terms(params.times);
  EXPECT_EQ(params.times.front().forward, SimTime{1});
  const PipelineOrder order = find_schedule("slimpipe-vocab", "test").order(params);
  const ShareCosts costs = share_costs(order, {second, second, second, SimTime{}});
  EXPECT_LT(costs.scale, order.parts_per_share);
  const PipelineResult result = evaluate_pipeline(order, costs.costs);
  // 12 micro-batches of 3 s on every device, and the fill of slimpipe with one slice more.
  const double makespan =
      static_cast<double>(result.makespan.ps) * 1e-12 / static_cast<double>(costs.scale);
  EXPECT_GE(makespan, 36);
  EXPECT_LT(makespan, 38);
}

// Wherever the range of times allows it parts divide without rounding.
TEST(Schedule, TimesAreDividedNoMoreThanNeeded) {
  const PipelineOrder order = named_order("interleaved", {2, 4, 2, 0});
  const SimTime second{1'000'000'000'000};
  ShareCosts costs = share_costs(order, {second, second, second, SimTime{}});
  EXPECT_EQ(costs.scale, 2);
  keep_in_range(order, costs);
  EXPECT_EQ(costs.scale, 2);
  EXPECT_EQ(costs.costs.forward.front(), second);
  costs.costs.forward.assign(4, SimTime{600'000'000'000'000'001});  // 4 x 4 of them: 9.6e18
  keep_in_range(order, costs);
  EXPECT_EQ(costs.scale, 1);
  EXPECT_EQ(costs.costs.forward.front(), SimTime{300'000'000'000'000'001});
  EXPECT_EQ(costs.costs.backward.front(), second);
}

// Before any list is made: 85 s otherwise.
TEST(Schedule, HetPipeNamesTheReplicasThatFit) {
  ScheduleParams params{256, 64, 1, 0};
  params.replicas = 64;
  const Schedule& hetpipe = find_schedule("hetpipe", "test");
  EXPECT_THAT(to_text(hetpipe.check(params)), HasSubstr("set replicas to 4"));
  params.replicas = 4;
  EXPECT_EQ(to_text(hetpipe.check(params)), "");
}

// A pass waits for one of many edges into it, not for one after the other.
TEST(Schedule, ManyEdgesAreWaitedForAtOnce) {
  ScheduleParams params{16, 24, 1, 0};
  params.slices = 16;
  const SimTime second{1'000'000'000'000};
  params.times = {{second, second, second, SimTime{second.ps / 2}}};
  const PipelineOrder order = find_schedule("slimpipe-vocab", "test").order(params);
  EXPECT_NO_THROW((void)evaluate_pipeline(order, stage_costs(order, params)));
}

}  // namespace
}  // namespace orrery::sim
