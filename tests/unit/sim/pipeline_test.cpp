// SPDX-License-Identifier: Apache-2.0
#include "sim/pipeline/pipeline.hpp"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "base/error.hpp"

namespace orrery::sim {
namespace {

using testing::HasSubstr;

PipelineCosts costs_of(const PipelineOrder& order, std::int64_t forward, std::int64_t backward,
                       std::int64_t latency) {
  const auto stages = static_cast<std::size_t>(order.num_virtual_stages);
  PipelineCosts costs;
  costs.forward.assign(stages, {forward});
  costs.input_grad.assign(stages, {backward / 2});
  costs.weight_grad.assign(stages, {backward - backward / 2});
  costs.backward.assign(stages, {backward});
  costs.send_forward.assign(stages - 1, {latency});
  costs.send_backward.assign(stages - 1, {latency});
  return costs;
}

PipelineOrder order_of(const char* name, const ScheduleParams& params) {
  return find_schedule(name, "test").order(params);
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) {
    text += line + "\n";
  }
  return text;
}

// Blocks of a forward and a backward that take 4 less; both results leave at their end.
TEST(Pipeline, JoinedPassesHidePartOfEachOther) {
  PipelineOrder order = order_of("dualpipe", {2, 4, 1, 0});
  PipelineCosts costs = costs_of(order, 10, 20, 0);
  const SimTime apart = evaluate_pipeline(order, costs).makespan;
  costs.kind_of.assign(4, 0);
  costs.hidden = {{4}};
  costs.kinds = 1;
  const PipelineResult result = evaluate_pipeline(order, costs, {.record_spans = true});
  EXPECT_LT(result.makespan, apart);
  EXPECT_EQ(run(expand_pipeline(order, costs)).makespan, result.makespan);
  for (std::size_t d = 0; d < 2; ++d) {
    std::int64_t pairs = 0;
    const std::vector<PassSpan>& spans = result.spans[d];
    for (std::size_t k = 0; k + 1 < spans.size(); ++k) {
      if (spans[k].pass.joined) {
        EXPECT_EQ((spans[k + 1].end - spans[k].start).ps, 10 + 20 - 4);
        ++pairs;
      }
    }
    EXPECT_GT(pairs, 0);
    EXPECT_EQ(result.devices[d].hidden.ps, 4 * pairs);
    EXPECT_EQ(result.devices[d].busy.ps, 4 * (10 + 20) - 4 * pairs);
  }
}

// p = 2, m = 2, F = 10, Bf = 20, c = 3, by hand: F0 0-10, F1 10-20 | F0 13-23, B0 23-43, F1 43-53,
// B1 53-73 | B0 46-66, B1 76-96.
TEST(Pipeline, SmallExampleByHand) {
  const PipelineOrder order = order_of("1f1b", {2, 2, 1, 0});
  PipelineCosts costs = costs_of(order, 10, 20, 3);
  costs.activation = {ByteCount(100), ByteCount(100)};
  costs.forward_workspace = {ByteCount(7), ByteCount(7)};
  costs.backward_workspace = {ByteCount(30), ByteCount(5)};
  const PipelineResult result = evaluate_pipeline(order, costs, {.record_spans = true});
  EXPECT_EQ(result.makespan.ps, 96);
  EXPECT_EQ(result.spans[0][2].start.ps, 46);
  EXPECT_EQ(result.spans[1][3].end.ps, 73);
  EXPECT_EQ(result.last_backward_end[0].ps, 96);
  EXPECT_EQ(result.last_backward_end[1].ps, 73);

  const DeviceUse& first = result.devices[0];
  EXPECT_EQ(first.first_start.ps, 0);
  EXPECT_EQ(first.last_end.ps, 96);
  EXPECT_EQ(first.busy.ps, 60);
  EXPECT_EQ(first.idle_warm_up.ps, 26);
  EXPECT_EQ(first.idle_steady.ps, 0);
  EXPECT_EQ(first.idle_cool_down.ps, 10);
  EXPECT_EQ(first.waiting_for_transfer.ps, 6);
  EXPECT_EQ(first.peak_chunks, 2);
  EXPECT_EQ(first.peak_activation.value(), 230);
  const DeviceUse& second = result.devices[1];
  EXPECT_EQ(second.first_start.ps, 13);
  EXPECT_EQ(second.idle_warm_up.ps + second.idle_steady.ps + second.idle_cool_down.ps, 0);
  EXPECT_EQ(second.peak_chunks, 1);
  EXPECT_EQ(second.peak_activation.value(), 107);
}

TEST(Pipeline, FirstAndLastPassesCanTakeLonger) {
  const PipelineOrder order = order_of("gpipe", {1, 3, 1, 0});
  PipelineCosts costs = costs_of(order, 10, 20, 0);
  costs.first_forward_extra = {{5}};
  costs.last_backward_extra = {{7}};
  const PipelineResult result = evaluate_pipeline(order, costs, {.record_spans = true});
  EXPECT_EQ(result.makespan.ps, 102);
  EXPECT_EQ(result.spans[0][0].end.ps, 15);
  EXPECT_EQ(result.spans[0][4].end.ps, 75);
  EXPECT_EQ(result.spans[0][5].end.ps, 102);
}

// The shortcut must really skip: what is evaluated hardly depends on the number of micro-batches.
// Two forwards 0-25 and 28-53, the two backwards of the second device 53-100, then 103-123,
// 123-150.
TEST(Pipeline, JoinedPassesOfAStageHaveOneFirstAndOneLast) {
  PipelineOrder order = order_of("gpipe", {2, 2, 1, 0});
  order.extended = true;
  const auto list = [](bool backwards_joined) {
    return std::vector<Pass>{{PassKind::Forward, 0, 0, true},
                             {PassKind::Forward, 0, 1},
                             {PassKind::Backward, 0, 0, backwards_joined},
                             {PassKind::Backward, 0, 1}};
  };
  order.passes = {list(false), list(true)};
  for (Pass& pass : order.passes[1]) {
    pass.virtual_stage = 1;
  }
  PipelineCosts costs = costs_of(order, 10, 20, 3);
  costs.first_forward_extra.assign(2, {5});
  costs.last_backward_extra.assign(2, {7});
  const PipelineResult result = evaluate_pipeline(order, costs, {.record_spans = true});
  EXPECT_EQ(result.spans[1][0].start.ps, 28);
  EXPECT_EQ(result.spans[0][2].start.ps, 103);
  EXPECT_EQ(result.makespan.ps, 150);
  EXPECT_EQ(run(expand_pipeline(order, costs)).makespan.ps, 150);
}

TEST(Pipeline, SteadyStateSkipsPasses) {
  for (const char* name : {"gpipe", "1f1b", "interleaved", "breadth-first"}) {
    const bool chunks = find_schedule(name, "test").traits.uses_chunks;
    std::int64_t evaluated[2];
    for (int k = 0; k < 2; ++k) {
      const PipelineOrder order = order_of(name, {8, k == 0 ? 256 : 2048, chunks ? 2 : 1, 0});
      const PipelineResult result = evaluate_pipeline(order, costs_of(order, 1000, 2000, 0));
      evaluated[k] = result.passes_evaluated;
      EXPECT_LT(result.passes_evaluated, result.passes_total / (k == 0 ? 2 : 16)) << name;
    }
    EXPECT_EQ(evaluated[0], evaluated[1]) << name;
  }
}

// Stages of different speed: upstream of the slowest one, devices run ahead at their own rate.
TEST(Pipeline, SteadyStateSkipsWithUnevenStages) {
  const PipelineOrder order = order_of("gpipe", {8, 1000, 1, 0});
  PipelineCosts costs = costs_of(order, 1000, 2000, 50);
  for (std::size_t s = 0; s < 8; ++s) {
    costs.forward[s].ps += static_cast<std::int64_t>(s * s % 5) * 100;
    costs.backward[s].ps += static_cast<std::int64_t>(s * s % 3) * 100;
  }
  const PipelineResult fast = evaluate_pipeline(order, costs);
  const PipelineResult full = evaluate_pipeline(order, costs, {.steady_state = false});
  EXPECT_EQ(fast.makespan, full.makespan);
  EXPECT_EQ(fast.devices[3].idle_warm_up, full.devices[3].idle_warm_up);
  EXPECT_LT(fast.passes_evaluated, full.passes_evaluated / 10);
}

// O21
TEST(Pipeline, BlockingOneForwardOneBackwardDeadlocks) {
  for (const int stages : {2, 4}) {
    const PipelineOrder order = order_of("1f1b", {stages, 4, 1, 0});
    PipelineCosts costs = costs_of(order, 10, 20, 3);
    costs.blocking_rendezvous = true;
    const Timeline timeline = run(expand_pipeline(order, costs));
    ASSERT_TRUE(timeline.deadlock.has_value());
    EXPECT_GT(timeline.deadlock->nodes_left, 0U);
    const std::string lines = joined(timeline.deadlock->blocked);
    // The last two stages: one insists on sending an activation, the other on sending a gradient.
    EXPECT_THAT(lines, HasSubstr(fmt::format("stage {} compute: send activation of micro-batch 1",
                                             stages - 2)));
    EXPECT_THAT(lines, HasSubstr(fmt::format("stage {} compute: send gradient of micro-batch 0",
                                             stages - 1)));
    EXPECT_THAT(lines, HasSubstr("receive gradient"));
    EXPECT_THAT(lines, HasSubstr("receive activation"));
  }
}

// A blocking transfer occupies both ends: nothing overlaps it. GPipe does not deadlock.
TEST(Pipeline, BlockingGpipeOccupiesBothEnds) {
  const PipelineOrder order = order_of("gpipe", {2, 2, 1, 0});
  PipelineCosts costs = costs_of(order, 10, 20, 3);
  costs.blocking_rendezvous = true;
  const Timeline timeline = run(expand_pipeline(order, costs));
  ASSERT_FALSE(timeline.deadlock.has_value());
  // F0 0-10, send 10-13, F1 13-23, send when stage 1 has ended F0 (13-23) 23-26; stage 1: F1 26-36,
  // B0 36-56, send 56-59, B1 59-79; stage 0: B0 59-79, receive 79-82, B1 82-102.
  EXPECT_EQ(timeline.makespan.ps, 102);
}

TEST(Pipeline, BlockingSinglePassRunsThrough) {
  const PipelineOrder order = order_of("1f1b", {3, 1, 1, 0});
  PipelineCosts costs = costs_of(order, 10, 20, 3);
  costs.blocking_rendezvous = true;
  EXPECT_EQ(run(expand_pipeline(order, costs)).makespan.ps, 3 * 30 + 4 * 3);
}

// A stage that takes its micro-batches in another order than 0, 1, 2 is evaluated all the same.
TEST(Pipeline, MicroBatchesOutOfOrder) {
  PipelineOrder order = order_of("gpipe", {2, 4, 1, 0});
  for (auto& list : order.passes) {
    std::reverse(list.begin() + 4, list.end());
  }
  EXPECT_EQ(check_order(order, 4), "");
  const PipelineResult result = evaluate_pipeline(order, costs_of(order, 10, 20, 0));
  EXPECT_EQ(result.makespan.ps, 5 * 30);
  EXPECT_EQ(result.passes_evaluated, 16);
}

TEST(Pipeline, TooLongIsAnError) {
  const PipelineOrder order = order_of("gpipe", {2, 1000, 1, 0});
  EXPECT_THROW(evaluate_pipeline(order, costs_of(order, std::int64_t{1} << 55, 1, 0)), Error);
  PipelineCosts costs = costs_of(order, 1, 1, 0);
  costs.activation.assign(2, ByteCount(std::int64_t{1} << 55));
  EXPECT_THROW(evaluate_pipeline(order, costs), Error);
}

TEST(PipelineOrderCheck, NamesWhatIsWrong) {
  const PipelineOrder good = order_of("1f1b", {2, 3, 1, 0});
  EXPECT_EQ(check_order(good, 3), "");
  EXPECT_THAT(check_order(good, 4), HasSubstr("micro-batches"));

  PipelineOrder order = good;
  order.passes[0].pop_back();
  EXPECT_THAT(check_order(order, 3),
              HasSubstr("virtual stage 0, micro-batch 2 lacks its backward"));
  order = good;
  order.passes[1].push_back(order.passes[1].back());
  EXPECT_THAT(check_order(order, 3), HasSubstr("listed twice"));
  order = good;
  std::swap(order.passes[1][0], order.passes[1][1]);
  EXPECT_THAT(check_order(order, 3), HasSubstr("before what it needs"));
  order = good;
  order.passes[0][0].virtual_stage = 1;
  EXPECT_THAT(check_order(order, 3), HasSubstr("does not hold it"));
  order = good;
  order.passes[0][0].micro_batch = 9;
  EXPECT_THAT(check_order(order, 3), HasSubstr("does not exist"));
  order = good;
  order.passes[0][0].kind = PassKind::Communication;
  EXPECT_THAT(check_order(order, 3), HasSubstr("no pass of a pipeline order"));
  order = good;
  order.device_of[1] = 7;
  EXPECT_THAT(check_order(order, 3), HasSubstr("device 7 has no list"));
  // Stage 1 wants the second micro-batch first, which stage 0 holds back until a backward is done.
  order = good;
  order.passes[0] = {{PassKind::Forward, 0, 0}, {PassKind::Backward, 0, 0},
                     {PassKind::Forward, 0, 1}, {PassKind::Backward, 0, 1},
                     {PassKind::Forward, 0, 2}, {PassKind::Backward, 0, 2}};
  order.passes[1] = {{PassKind::Forward, 1, 1}, {PassKind::Backward, 1, 1},
                     {PassKind::Forward, 1, 0}, {PassKind::Backward, 1, 0},
                     {PassKind::Forward, 1, 2}, {PassKind::Backward, 1, 2}};
  EXPECT_THAT(check_order(order, 3), HasSubstr("deadlock"));
}

TEST(PipelineOrderCheck, SplitBackwards) {
  PipelineOrder order;
  order.num_virtual_stages = 1;
  order.micro_batches = 1;
  order.device_of = {0};
  order.passes = {{{PassKind::Forward, 0, 0}, {PassKind::InputGrad, 0, 0}}};
  EXPECT_THAT(check_order(order, 1), HasSubstr("lacks its backward"));
  order.passes[0].push_back({PassKind::WeightGrad, 0, 0});
  EXPECT_EQ(check_order(order, 1), "");
  order.passes[0].push_back({PassKind::Backward, 0, 0});
  EXPECT_THAT(check_order(order, 1), HasSubstr("twice"));
}

}  // namespace
}  // namespace orrery::sim
