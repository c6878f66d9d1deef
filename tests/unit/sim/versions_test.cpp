// SPDX-License-Identifier: Apache-2.0
#include "sim/pipeline/versions.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <utility>

#include "base/json.hpp"
#include "sim/orders/schedule_document.hpp"
#include "sim/pipeline/share_costs.hpp"

namespace orrery::sim {
namespace {

PipelineOrder checked_order(const char* name, const ScheduleParams& params) {
  const Schedule& schedule = find_schedule(name, "test");
  EXPECT_EQ(to_text(schedule.check(params)), "") << name;
  return schedule.order(params);
}

// O20: versions and staleness of every stage.
TEST(Versions, CountedFromTheLists) {
  for (const int p : {1, 2, 4, 8}) {
    const auto dream = count_versions(checked_order("pipedream", {p, 1, 1, 0}));
    const auto two = count_versions(checked_order("pipedream-2bw", {p, 2 * p, 1, 0}));
    const auto flush = count_versions(checked_order("1f1b", {p, 2 * p, 1, 0}));
    const auto synced = count_versions(checked_order("pipedream-vertical-sync", {p, 1, 1, 0}));
    const auto predicted = count_versions(checked_order("xpipe", {p, 4, 1, 0}));
    for (int i = 0; i < p; ++i) {
      const auto at = static_cast<std::size_t>(i);
      EXPECT_EQ(dream[at].staleness, p - 1 - i);
      EXPECT_EQ(dream[at].versions, p - i);
      EXPECT_EQ(synced[at].staleness, p - 1);
      EXPECT_EQ(synced[at].versions, p);
      EXPECT_EQ(two[at].staleness, 1);
      EXPECT_EQ(two[at].versions, 2);
      EXPECT_EQ(flush[at].staleness, 0);
      EXPECT_EQ(flush[at].versions, 1);
      EXPECT_EQ(predicted[at].versions, 2);
      EXPECT_TRUE(i == 0 || predicted[at].staleness <= predicted[at - 1].staleness);
    }
    EXPECT_EQ(predicted.back().staleness, 0);
  }
}

// The first micro-batch of an iteration predicts the weights for all of it, where updates lie
// between its forward and its own: not on the last stage, nor before the first update. Backwards
// have no update between.
TEST(Versions, PredictionsTakeTimeOnceAnIteration) {
  for (const int per_update : {1, 4}) {
    const PipelineOrder order = checked_order("xpipe", {4, per_update, 1, 0});
    PassTimes share{{10}, {12}, {8}, {0}};
    share.prediction = SimTime{6};
    const PipelineResult result =
        evaluate_pipeline(order, share_costs(order, share).costs, {.record_spans = true});
    for (std::size_t i = 0; i < 4; ++i) {
      const std::int64_t predictions = i < 3 ? order.iterations - 1 : 0;
      EXPECT_EQ(result.devices[i].busy.ps, 30 * order.micro_batches + 6 * predictions) << i;
    }
    // A first stage waits for the way of a micro-batch to the last stage and back, on which all
    // three predict: 4 x 30 + 3 x 6 for each four micro-batches, if the stages themselves are not
    // slower.
    EXPECT_DOUBLE_EQ(steady_period(order, result), per_update == 1 ? 36 : 34.5);
  }
  // Other schedules predict nothing.
  const PipelineOrder stashed = checked_order("pipedream", {4, 4, 1, 0});
  PassTimes share{{10}, {12}, {8}, {0}};
  share.prediction = SimTime{6};
  EXPECT_TRUE(share_costs(stashed, share).costs.unit_forward.empty());
}

// The slowest stage sets the period: nothing else idles.
TEST(Versions, SteadyPeriodIsThatOfTheSlowestStage) {
  for (const char* name : {"pipedream", "pipedream-vertical-sync", "pipedream-2bw", "xpipe"}) {
    const PipelineOrder order = checked_order(name, {4, 8, 1, 0});
    PipelineCosts costs = share_costs(order, {{10}, {12}, {8}, {0}}).costs;
    costs.forward[2] = {15};
    const PipelineResult result = evaluate_pipeline(order, costs, {.record_spans = true});
    EXPECT_DOUBLE_EQ(steady_period(order, result), 35.0) << name;
  }
}

// What repeats need not do so after as many units as there are stages: here it takes three.
TEST(Versions, SteadyPeriodIsExactWhereARunRepeats) {
  for (const int iterations : {0, 4, 200}) {
    ScheduleParams params{5, 5, 1, 0};
    params.iterations = iterations;
    const PipelineOrder order = checked_order("pipedream-2bw", params);
    PipelineCosts costs = share_costs(order, {}).costs;
    const std::array<std::int64_t, 5> forward = {8, 8, 5, 3, 9};
    const std::array<std::int64_t, 5> backward = {1, 1, 7, 3, 4};
    for (std::size_t s = 0; s < 5; ++s) {
      costs.forward[s] = {forward[s]};
      costs.backward[s] = {backward[s]};
    }
    costs.send_forward = {{0}, {0}, {3}, {3}};
    costs.send_backward = costs.send_forward;
    const PipelineResult result = evaluate_pipeline(order, costs, {.record_spans = true});
    EXPECT_DOUBLE_EQ(steady_period(order, result), 43.0 / 3) << iterations;
  }
}

// Of a micro-batch, however many slices it has.
TEST(Versions, SteadyPeriodIsThatOfAllSlices) {
  std::string passes;
  for (int j = 0; j < 6; ++j) {
    for (const auto& [pass, slice] : {std::pair("F", 0), {"F", 1}, {"BW", 1}, {"BW", 0}}) {
      passes += fmt::format(R"({{"pass": "{}", "stage": 0, "micro_batch": {}, "slice": {}}}, )",
                            pass, j, slice);
    }
    passes += fmt::format(R"({{"pass": "U", "stage": 0, "update": {}}}{})", j, j < 5 ? ", " : "");
  }
  const std::string text = R"({"schema": "orrery-schedule", "version": 1, "name": "mine",
      "slices": 2, "iterations": 6, "versions": "stashed", "passes": [[)" +
                           passes + "]]}";
  ScheduleParams params{1, 1, 1, 0};
  params.slices = 2;
  const PipelineOrder order =
      order_of(read_schedule_document(parse_json(text, "mine.json"), "mine.json"), params);
  PipelineCosts costs = share_costs(order, {}).costs;
  costs.forward = {{10}};
  costs.backward = {{20}};
  const PipelineResult result = evaluate_pipeline(order, costs, {.record_spans = true});
  EXPECT_DOUBLE_EQ(steady_period(order, result), 60.0);
}

}  // namespace
}  // namespace orrery::sim
