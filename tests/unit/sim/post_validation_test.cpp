// SPDX-License-Identifier: Apache-2.0
// Zero-bubble iterations that follow each other without a meeting of all devices.
#include "sim/orders/post_validation.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "sim/engine/engine.hpp"
#include "sim/pipeline/share_costs.hpp"
#include "sim/pipeline/versions.hpp"

namespace orrery::sim {
namespace {

constexpr const char* kNames[] = {"zb-h1", "zb-h2", "zb-1p", "zb-2p", "zb-v"};

PipelineOrder order_of(const char* name, ScheduleParams params, int iterations) {
  const Schedule& schedule = find_schedule(name, "test");
  params.chunks = schedule.traits.uses_chunks ? 2 : 1;
  params.iterations = iterations;
  EXPECT_EQ(to_text(schedule.check(params)), "") << name;
  PipelineOrder order = schedule.order(params);
  EXPECT_EQ(check_order(order, order.micro_batches), "") << name;
  return order;
}

PipelineResult recorded_run(const PipelineOrder& order, const PassTimes& share) {
  return evaluate_pipeline(order, share_costs(order, share).costs, {.record_spans = true});
}

// Stages of zb-h2 end one after the other, so that each begins its next iteration as much earlier:
// an iteration takes the longest span of a stage, not the time from the first start to the last
// end.
TEST(PostValidation, AnIterationTakesTheLongestSpanOfAStage) {
  for (const PassTimes& share : {PassTimes{{1}, {1}, {1}, {0}}, PassTimes{{4}, {5}, {3}, {0}}}) {
    for (const int p : {4, 8}) {
      const ScheduleParams params{.stages = p, .micro_batches = 3 * p, .times = {share}};
      const PipelineOrder order = order_of("zb-h2", params, 4);
      const PipelineResult result = recorded_run(order, share);
      const std::int64_t work = (share.forward + share.input_grad + share.weight_grad).ps;
      const std::int64_t idle =
          (p - 1) * (share.forward + share.input_grad - share.weight_grad * 2).ps;
      EXPECT_DOUBLE_EQ(iteration_period(order, result), static_cast<double>(3 * p * work + idle));
      const PipelineResult once = recorded_run(order_of("zb-h2", params, 1), share);
      EXPECT_LT(iteration_period(order, result), static_cast<double>(once.makespan.ps));
    }
  }
}

// No iteration is slower than with a meeting, and all passes of all iterations run once.
TEST(PostValidation, NeverSlowerThanWithAMeeting) {
  const PassTimes share{{5}, {6}, {4}, {1}};
  for (const char* name : kNames) {
    const ScheduleParams params{.stages = 4, .micro_batches = 9, .times = {share}};
    const PipelineResult once = recorded_run(order_of(name, params, 0), share);
    const PipelineOrder order = order_of(name, params, 3);
    const PipelineResult all = recorded_run(order, share);
    EXPECT_LE(iteration_period(order, all), static_cast<double>(once.makespan.ps)) << name;
    EXPECT_EQ(all.devices[0].busy, once.devices[0].busy * 3) << name;
    const VersionUseOfStage worst = worst_of(count_versions(order));
    EXPECT_EQ(worst.staleness, 0) << name;
    EXPECT_EQ(worst.versions, 1) << name;
    EXPECT_EQ(run(expand_pipeline(order, share_costs(order, share).costs)).makespan, all.makespan)
        << name;
  }
}

TEST(PostValidation, RunsWithAnyNumberOfMicroBatches) {
  for (const char* name : kNames) {
    for (int p = 1; p <= 5; ++p) {
      for (const int m : {1, 2, 3, 7, 11}) {
        const PassTimes share{{4}, {3}, {5}, {2}};
        const ScheduleParams params{.stages = p, .micro_batches = m, .times = {share}};
        const PipelineOrder order = order_of(name, params, 3);
        EXPECT_EQ(recorded_run(order, share).devices[0].busy.ps,
                  3 * m * 12 * share_costs(order, share).scale)
            << name << p << " " << m;
      }
    }
  }
}

// The state travels forward, then back: a device updates after the one before it, and has the whole
// state before the first gradient of its next iteration.
TEST(PostValidation, StateTravelsForwardAndBack) {
  const int p = 4;
  const PassTimes share{{3}, {3}, {3}, {2}};
  const ScheduleParams params{.stages = p, .micro_batches = 8, .times = {share}};
  const PipelineOrder order = order_of("zb-h2", params, 2);
  const PipelineResult result = recorded_run(order, share);
  const auto end_of = [&](int device, PassKind kind, int stage, std::uint32_t unit) {
    const auto& spans = result.spans[static_cast<std::size_t>(device)];
    const auto found = std::find_if(spans.begin(), spans.end(), [&](const PassSpan& span) {
      return span.pass.kind == kind && span.pass.virtual_stage == stage &&
             span.pass.micro_batch == unit;
    });
    EXPECT_NE(found, spans.end());
    return found->end.ps;
  };
  for (int d = 0; d < p; ++d) {
    const std::int64_t updated = end_of(d, PassKind::Optimizer, d, 0);
    EXPECT_LE(end_of(d, PassKind::WeightGrad, d, 7), updated);
    EXPECT_LE(d == 0 ? 0 : end_of(d - 1, PassKind::Optimizer, d - 1, 0) + 2, updated);
    const std::int64_t whole = end_of(d, PassKind::Forward, 2 * p + p - 1 - d, 0);
    EXPECT_LE(end_of(p - 1, PassKind::Forward, 2 * p - 1, 0) + 2 * (p - 1 - d), whole);
    EXPECT_LE(whole, end_of(d, PassKind::InputGrad, d, 8));
  }
}

// Stages at both ends share a table: its gradients are added up when both have run their last
// gradient, beside the weight gradients that are left, and before either updates.
TEST(PostValidation, SharedTablesAreSummedBeforeTheUpdate) {
  const int p = 4;
  const int m = 8;
  const PassTimes share{{3}, {3}, {3}, {0}};
  const ScheduleParams params{.stages = p, .micro_batches = m, .times = {share}};
  ScheduleParams several = params;
  several.iterations = 3;
  const PipelineOrder order =
      with_post_validation(order_of("zb-h2", params, 1), several, {0, p - 1});
  EXPECT_EQ(check_order(order, order.micro_batches), "");
  ASSERT_EQ(order.passes.size(), static_cast<std::size_t>(p) + 1);
  PipelineCosts costs = share_costs(order, share).costs;
  const auto sum = static_cast<std::uint16_t>(order.num_virtual_stages - 1);
  const std::int64_t unit = costs.forward.front().ps;
  for (const std::int64_t length : {std::int64_t{0}, 40 * unit}) {
    costs.forward[sum] = SimTime{length};
    const PipelineResult result = evaluate_pipeline(order, costs, {.record_spans = true});
    const auto end_of = [&](int device, PassKind kind, int stage, std::uint32_t number) {
      const auto& spans = result.spans[static_cast<std::size_t>(device)];
      const auto found = std::find_if(spans.begin(), spans.end(), [&](const PassSpan& span) {
        return span.pass.kind == kind && span.pass.virtual_stage == stage &&
               span.pass.micro_batch == number;
      });
      EXPECT_NE(found, spans.end());
      return found->end.ps;
    };
    for (std::uint32_t iteration = 0; iteration < 3; ++iteration) {
      const std::int64_t ready =
          std::max(end_of(0, PassKind::InputGrad, 0, (iteration + 1) * m - 1),
                   end_of(p - 1, PassKind::InputGrad, p - 1, (iteration + 1) * m - 1));
      const std::int64_t added = end_of(p, PassKind::Forward, sum, iteration);
      EXPECT_EQ(added, ready + length);
      for (const int d : {0, p - 1}) {
        EXPECT_LE(added, end_of(d, PassKind::Optimizer, d, iteration));
      }
    }
  }
}

// An update that is taken back costs the forwards that have used it, which run again behind the
// whole state; with each of them it takes as much longer.
TEST(PostValidation, RollbacksRunForwardsAgain) {
  const PassTimes share{{4}, {5}, {3}, {1}};
  for (const char* name : kNames) {
    std::vector<std::int64_t> makespans;
    std::vector<std::int64_t> busy;
    for (const int rollbacks : {0, 1, 2, 3}) {
      const ScheduleParams params{
          .stages = 4, .micro_batches = 12, .times = {share}, .rollbacks = rollbacks};
      const PipelineOrder order = order_of(name, params, 5);
      const PipelineResult result = recorded_run(order, share);
      EXPECT_EQ(run(expand_pipeline(order, share_costs(order, share).costs)).makespan,
                result.makespan);
      EXPECT_EQ(worst_of(count_versions(order)).staleness, 0);
      makespans.push_back(result.makespan.ps);
      busy.push_back(result.devices[0].busy.ps);
      // What was run too early is what the first device runs of the next iteration before the
      // whole state is there.
      const PipelineOrder final =
          order_of(name, {.stages = 4, .micro_batches = 12, .times = {share}}, 5);
      const auto& list = final.passes[0];
      const auto check = std::find_if(list.begin(), list.end(), [&](const Pass& pass) {
        return pass.kind == PassKind::Forward && pass.virtual_stage + 1 == final.num_virtual_stages;
      });
      const auto updated = std::find_if(list.begin(), list.end(), [](const Pass& pass) {
        return pass.kind == PassKind::Optimizer;
      });
      const std::int64_t ahead = std::count_if(
          updated, check, [](const Pass& pass) { return pass.kind == PassKind::Forward; });
      EXPECT_GT(ahead, 0) << name;
      EXPECT_EQ(busy.back(), busy.front() + rollbacks * ahead * 4) << name;
    }
    EXPECT_GT(makespans[1], makespans[0]) << name;
    EXPECT_EQ(makespans[2] - makespans[1], makespans[3] - makespans[2]) << name;
  }
  const Schedule& schedule = find_schedule("zb-h2", "test");
  EXPECT_EQ(
      to_text(schedule.check({.stages = 4, .micro_batches = 12, .iterations = 3, .rollbacks = 3})),
      "rollbacks (of iterations but the last) must be at most 2, not 3: set rollbacks to 2");
  EXPECT_EQ(
      to_text(
          find_schedule("1f1b", "test").check({.stages = 4, .micro_batches = 12, .rollbacks = 1})),
      "updates are final here: set rollbacks to 0");
}

}  // namespace
}  // namespace orrery::sim
