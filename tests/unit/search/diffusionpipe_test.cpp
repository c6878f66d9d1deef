// SPDX-License-Identifier: Apache-2.0
// Frozen layers in the bubbles of a pipeline.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "sim/orders/self_conditioning.hpp"
#include "sim/pipeline/share_costs.hpp"
#include "tests/unit/search/planner_answers.hpp"

namespace orrery::search {
namespace {

TEST(DiffusionPipePlanner, FillsBubbles) {
  const Planner& planner = find_planner("diffusionpipe", "test");
  const Json answer = run_planner(planner, parse_json(planner.example, "example"), "example");
  EXPECT_LE(number(answer, "iteration_s"), number(answer, "iteration_without_filling_s"));
  EXPECT_LE(number(answer, "bubble_fraction"), number(answer, "bubble_fraction_without_filling"));
  // The estimate counts every transfer as a stage: never below the simulated pipeline.
  EXPECT_GE(number(answer, "estimate_s"), number(answer, "backbone_s"));
}

// Transfers of 1.5 s each way take a slot of 3 s, as every stage does: the estimate is met, which
// the plain warm-up, 99 s, does not reach.
TEST(DiffusionPipePlanner, TheEstimateIsAnUpperBound) {
  const Json answer = solve("diffusionpipe", R"({"schema": "orrery-problem", "version": 1,
      "layers": [{"forward": "1 s", "backward": "2 s", "output": "1.5 GB", "count": 4}],
      "devices": 4, "stages": 4, "micro_batches": 16, "bandwidth": "1 GB/s"})");
  EXPECT_NEAR(number(answer, "estimate_s"), 66, 1e-9);
  EXPECT_NEAR(number(answer, "backbone_s"), 66, 1e-9);
  EXPECT_EQ(answer.find("warm_up")->as_integer(), 1);
}

// Three stages and two micro-batches: two devices idle in [0, 10), [30, 50) and [90, 120) ms, one
// in between.
TEST(DiffusionPipePlanner, RunsFrozenLayersOnAllIdleDevices) {
  const Json answer = solve("diffusionpipe", R"({"schema": "orrery-problem", "version": 1,
      "layers": [{"forward": "10 ms", "backward": "20 ms", "output": "0 B", "count": 3}],
      "frozen_layers": ["25 ms", "30 ms", "60 ms", "100 ms"], "devices": 3, "stages": 3,
      "micro_batches": 2, "bandwidth": "50 GB/s"})");
  const auto& filling = answer.find("filling")->as_array();
  const std::vector<double> starts{0, 15, 37.5, 85};
  const std::vector<double> ends{15, 37.5, 85, 120};
  ASSERT_EQ(filling.size(), starts.size());
  for (std::size_t layer = 0; layer < starts.size(); ++layer) {
    EXPECT_NEAR(number(filling[layer], "start_s"), starts[layer] / 1000, 1e-12);
    EXPECT_NEAR(number(filling[layer], "end_s"), ends[layer] / 1000, 1e-12);
    EXPECT_NEAR(number(filling[layer], "share"), layer == 3 ? 0.65 : 1, 1e-12);
  }
  EXPECT_NEAR(number(answer, "iteration_s"), 0.120 + 0.035 / 3, 1e-12);
  EXPECT_NEAR(number(answer, "bubble_fraction"), 0, 1e-12);
}

// The schedule runs what the planner says: portions of a frozen layer go where devices idle, also
// of unequal stages. It takes no less, and only as much longer as gaps do not hold whole portions.
TEST(DiffusionPipePlanner, TheScheduleTakesAsLong) {
  struct Case {
    std::vector<int> forward;  // ms by stage; backwards take twice as long
    int micro_batches;
    int frozen;  // ms of all devices together
  };
  for (const Case& one :
       {Case{{10, 10, 10, 10}, 8, 320}, Case{{10, 24, 10, 12}, 24, 960}, Case{{30, 8, 8}, 12, 360},
        Case{{10, 24, 10, 12}, 24, 1920}, Case{{5, 12}, 40, 400}}) {
    const int p = static_cast<int>(one.forward.size());
    std::string layers;
    for (const int forward : one.forward) {
      layers += fmt::format(R"({}{{"forward": "{} ms", "backward": "{} ms", "output": "0 B"}})",
                            layers.empty() ? "" : ", ", forward, 2 * forward);
    }
    const Json answer = solve(
        "diffusionpipe", fmt::format(R"({{"schema": "orrery-problem", "version": 1, "layers": [{}],
        "frozen_layers": ["{} ms"], "devices": {}, "stages": {}, "micro_batches": {},
        "bandwidth": "50 GB/s"}})",
                                     layers, one.frozen, p, p, one.micro_batches));
    sim::ScheduleParams params;
    params.stages = p;
    params.micro_batches = one.micro_batches;
    const auto ms = [](double time) { return to_sim_time(Seconds(time / 1000)); };
    for (const int forward : one.forward) {
      params.times.push_back({ms(forward), ms(2 * forward), {}, {}});
    }
    const double portion = static_cast<double>(one.frozen) / (p * one.micro_batches);
    params.times.resize(static_cast<std::size_t>(2 * p), {ms(portion), {}, {}, {}});
    const sim::PipelineOrder order = sim::find_schedule("diffusionpipe", "test").order(params);
    EXPECT_EQ(sim::check_order(order, order.micro_batches), "");
    const sim::PipelineResult result =
        sim::evaluate_pipeline(order, sim::stage_costs(order, params));
    const double planned = number(answer, "iteration_s");
    const double run = to_seconds(result.makespan).value();
    EXPECT_GE(run, planned * (1 - 1e-9));
    EXPECT_LE(run, planned * 1.02 + portion / 1000) << p << " " << one.frozen;
  }
}

// On one device an extra forward of each micro-batch is all that an iteration takes longer. On
// four, too: 33 s and 8 x 1 s, as the extra forwards of the first micro-batches fill the time in
// which the last stages idled. The estimate counts 14 slots of 4 s.
TEST(DiffusionPipePlanner, SelfConditioningRunsEveryMicroBatchForwardTwice) {
  const auto answer = [](int devices, int micro_batches) {
    return solve("diffusionpipe", fmt::format(R"({{"schema": "orrery-problem", "version": 1,
        "layers": [{{"forward": "1 s", "backward": "2 s", "count": 4}}],
        "frozen_layers": ["4 s"], "devices": {0}, "stages": {0}, "micro_batches": {1},
        "bandwidth": "1 GB/s", "self_conditioning": 0.5}})",
                                              devices, micro_batches));
  };
  const Json one = answer(1, 4);
  EXPECT_NEAR(number(one, "iteration_s"), 4 * 12 + 4, 1e-9);
  EXPECT_NEAR(number(*one.find("with_self_conditioning"), "iteration_s"), 4 * 16 + 4, 1e-9);
  EXPECT_NEAR(number(one, "mean_iteration_s"), 4 * 14 + 4, 1e-9);
  const Json four = answer(4, 8);
  const Json& with = *four.find("with_self_conditioning");
  EXPECT_NEAR(number(four, "backbone_s"), 33, 1e-9);
  EXPECT_NEAR(number(with, "backbone_s"), 41, 1e-9);
  EXPECT_NEAR(number(with, "estimate_s"), 56, 1e-9);
  EXPECT_NEAR(number(with, "iteration_s"), 41, 1e-9);  // the frozen layer fits
  EXPECT_NEAR(number(four, "mean_iteration_s"), 37, 1e-9);
  EXPECT_NEAR(number(four, "mean_iteration_without_filling_s"), 38, 1e-9);
}

// Tasks of 2 s forward, 2 s and 3 s backward: stages of 4 s and 3 s, but of 4 s and 5 s where the
// forward runs twice in every iteration.
TEST(DiffusionPipePlanner, CutsForTheExtraForward) {
  for (const auto& [share, last] : {std::pair{0, 2}, {1, 1}}) {
    const Json answer = solve("diffusionpipe", fmt::format(R"({{"schema": "orrery-problem",
        "version": 1, "layers": [{{"forward": "2 s"}}, {{"backward": "2 s"}},
                                 {{"backward": "3 s"}}],
        "devices": 2, "stages": 2, "micro_batches": 4, "bandwidth": "1 GB/s",
        "self_conditioning": {}}})",
                                                           share));
    EXPECT_EQ(answer.find("stages")->as_array().front().find("last")->as_integer(), last);
  }
}

// What the last stage makes goes back before a micro-batch's forward: 1 + 1 s forward, 1 s of
// messages between the stages and 5 s back, then the micro-batch itself.
TEST(DiffusionPipePlanner, SelfConditioningSendsTheResultBack) {
  const Json answer = solve("diffusionpipe", R"({"schema": "orrery-problem", "version": 1,
      "layers": [{"forward": "1 s", "backward": "2 s", "output": "1 GB"},
                 {"forward": "1 s", "backward": "2 s", "output": "5 GB"}],
      "devices": 2, "stages": 2, "micro_batches": 1, "bandwidth": "1 GB/s",
      "self_conditioning": 1})");
  EXPECT_NEAR(number(answer, "backbone_s"), 8, 1e-9);
  EXPECT_NEAR(number(*answer.find("with_self_conditioning"), "backbone_s"), 16, 1e-9);
  EXPECT_NEAR(number(answer, "mean_iteration_s"), 16, 1e-9);
  const sim::PipelineOrder order = sim::self_conditioned_1f1b(3, 5, true);
  EXPECT_EQ(sim::check_order(order, order.micro_batches), "");
}

}  // namespace
}  // namespace orrery::search
