// SPDX-License-Identifier: Apache-2.0
// Planners of chains on cases worked by hand: pipedream, bapipe, layerpipe, spp.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "sim/pipeline/pipeline.hpp"
#include "sim/schedule.hpp"
#include "tests/unit/search/planner_answers.hpp"

namespace orrery::search {
namespace {

// The second stage on two replicas receives 5 GB and sends 6 GB over two links each, but the third
// receives those over one: 12 s. With one replica of the second stage what it
// sends takes 12 s as well, which the stage behind it, on two, does not see.
TEST(PipeDreamPlanner, CountsWhatAStageSends) {
  const Json answer = solve("pipedream", R"({"schema": "orrery-problem", "version": 1, "layers": [
      {"forward": "4 s", "output": "5 GB", "parameters": "5 GB"},
      {"forward": "10 s", "output": "6 GB", "parameters": "3 GB"},
      {"forward": "1 s", "output": "8 GB", "parameters": "5 GB"},
      {"forward": "8 s", "output": "2 GB", "parameters": "5 GB"}],
      "levels": [{"workers": 4, "bandwidth": "1 GB/s"}]})");
  EXPECT_NEAR(number(answer, "bottleneck_s"), 12, 1e-9);
  EXPECT_EQ(*answer.find("stages"), parse_json(R"([{"first": 0, "last": 1, "replicas": 1},
      {"first": 1, "last": 2, "replicas": 2}, {"first": 2, "last": 4, "replicas": 1}])",
                                               "expected"));
}

// Seconds of 1F1B with equal stages of 1 s and 2 s and transfers of 0.25 s.
double seconds_of_1f1b(int stages, int micro_batches, int warm_up) {
  sim::ScheduleParams params;
  params.stages = stages;
  params.micro_batches = micro_batches;
  params.warm_up = warm_up;
  const auto count = static_cast<std::size_t>(stages);
  sim::PipelineCosts costs;
  costs.forward.assign(count, to_sim_time(Seconds(1)));
  costs.backward.assign(count, to_sim_time(Seconds(2)));
  costs.input_grad.assign(count, {});
  costs.weight_grad = costs.input_grad;
  costs.send_forward.assign(count - 1, to_sim_time(Seconds(0.25)));
  costs.send_backward = costs.send_forward;
  const sim::PipelineOrder order = sim::find_schedule("1f1b", "test").order(params);
  return to_seconds(sim::evaluate_pipeline(order, costs).makespan).value();
}

// Equal stages, any number of micro-batches: the times are those of the lists.
TEST(BaPipePlanner, TimesOfExecutorsAreThoseOfTheirLists) {
  for (int stages = 1; stages <= 5; ++stages) {
    for (int micro_batches = 1; micro_batches <= 13; ++micro_batches) {
      const Json answer = solve("bapipe", fmt::format(R"({{"schema": "orrery-problem", "version": 1,
          "layers": [{{"forward": "1 s", "backward": "2 s", "output": "1 GB", "count": {0}}}],
          "devices": [{{"count": {0}}}], "bandwidth": "4 GB/s", "micro_batches": {1}}})",
                                                      stages, micro_batches));
      const Json& times = *answer.find("executors_s");
      EXPECT_NEAR(number(times, "1f1b-as"), seconds_of_1f1b(stages, micro_batches, 0), 1e-9)
          << stages << ' ' << micro_batches;
      EXPECT_NEAR(number(times, "1f1b-so"), seconds_of_1f1b(stages, micro_batches, 1), 1e-9)
          << stages << ' ' << micro_batches;
    }
  }
}

// Four stages and micro-batches, 3 s, 1 s each way: 21 s and 2 c (3 + 2) plain, 2 c 3 doubled.
TEST(BaPipePlanner, ThePlainWarmUpPaysARoundTripForEveryStage) {
  const Json answer = solve("bapipe", R"({"schema": "orrery-problem", "version": 1,
      "layers": [{"forward": "1 s", "backward": "2 s", "output": "1 GB", "count": 4}],
      "devices": [{"count": 4}], "bandwidth": "1 GB/s", "micro_batches": 4})");
  EXPECT_NEAR(number(*answer.find("executors_s"), "1f1b-as"), 31, 1e-9);
  EXPECT_NEAR(number(*answer.find("executors_s"), "1f1b-so"), 27, 1e-9);
  EXPECT_EQ(answer.find("executor")->as_string(), "1f1b-so");
}

// Arcs of 5, 4, 4.5, 4.5, 4, 4 s on two processors take 13.5 s, the two layers 13 s each: the
// search includes whole layers.
TEST(LayerPipePlanner, IsNeverSlowerThanWholeLayers) {
  const Json answer = solve("layerpipe", R"({"schema": "orrery-problem", "version": 1,
      "layers": [{"forward": "5 s", "backward": "8 s"}, {"forward": "4 s", "backward": "9 s"}],
      "processors": 2})");
  EXPECT_NEAR(number(answer, "arc_load_s"), 13, 1e-12);
  EXPECT_NEAR(number(answer, "speedup"), 1, 1e-12);
  EXPECT_TRUE(answer.find("whole_layers")->as_bool());
}

// Every cut has the last stage's 45 ms as bottleneck; the one behind the second layer would send
// its 50 MB.
TEST(BaPipePlanner, AvoidsTransfersAmongEqualBottlenecks) {
  const Json answer = solve("bapipe", R"({"schema": "orrery-problem", "version": 1,
      "layers": [{"forward": "1 ms", "backward": "1 ms", "output": "0 MB"},
                 {"forward": "1 ms", "backward": "1 ms", "output": "50 MB"},
                 {"forward": "0 ms", "backward": "0 ms", "output": "0 MB"},
                 {"forward": "5 ms", "backward": "40 ms", "output": "0 MB"}],
      "devices": [{"count": 2}], "bandwidth": "10 GB/s", "micro_batches": 5})");
  EXPECT_EQ(answer.find("stages")->as_array().front().find("last")->as_integer(), 3);
  EXPECT_NEAR(number(answer, "time_s"), 6 * 0.045, 1e-12);
}

}  // namespace
}  // namespace orrery::search
