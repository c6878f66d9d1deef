// SPDX-License-Identifier: Apache-2.0
// Plans with replicated stages as PipeDream's schedule runs them.
#include "search/problems/dealt_pipeline.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <string>

#include "tests/unit/search/planner_answers.hpp"

namespace orrery::search {
namespace {

Chain chain_of_seconds(const std::vector<double>& forward) {
  std::vector<ChainLayer> layers;
  for (const double seconds : forward) {
    layers.push_back({Seconds(seconds), Seconds(2 * seconds), Bytes(100), Bytes(0), Bytes(10)});
  }
  return Chain(std::move(layers));
}

// Without transfers the slowest stage sets the period, with its all-reduce a round.
TEST(DealtPipeline, SlowestStageSetsThePeriod) {
  const Chain chain = chain_of_seconds({9, 1});
  const ChainPipeline pipeline{&chain, {{0, 1, 9}, {1, 2, 1}}};
  const auto times = run_dealt(pipeline, {{0, 0}, {0, 0}});
  ASSERT_TRUE(times.has_value());
  EXPECT_NEAR(times->period, 3, 1e-9);
  EXPECT_EQ(times->micro_batches, (std::vector<int>{2, 1}));
  EXPECT_EQ(times->staleness, 1);
  EXPECT_EQ(times->versions, 2);
  EXPECT_NEAR(run_dealt(pipeline, {{0, 0}, {9, 0}})->period, (27.0 + 9) / 9, 1e-9);
}

// All devices of the first stage share the link of the second: activations one after the other,
// and gradients in the other direction or over the same link.
TEST(DealtPipeline, TransfersShareLinks) {
  const Chain chain = chain_of_seconds({1, 0.1});
  const ChainPipeline pipeline{&chain, {{0, 1, 8}, {1, 2, 1}}};
  const double full = run_dealt(pipeline, {{5, 0}, {0, 0}})->period;
  const double half = run_dealt(pipeline, {{5, 0}, {0, 0}, true})->period;
  EXPECT_GE(full, 5 - 1e-9);
  EXPECT_GE(half, 10 - 1e-9);
  EXPECT_LT(full, half);
  EXPECT_NEAR(half, 10, 0.5);
}

// Bytes over the slowest link, and a ring of full-duplex devices.
TEST(DealtPipeline, DelaysOfLinks) {
  const Chain chain = chain_of_seconds({1, 1});
  const ChainPipeline pipeline{&chain, {{0, 1, 4}, {1, 2, 1}}};
  const ChainDelays delays = delays_over(pipeline, ChainLinks(5));
  EXPECT_EQ(delays.send, (std::vector<double>{2, 0}));
  EXPECT_EQ(delays.reduce, (std::vector<double>{2.0 * 3 / 4 * 100 / 5, 0}));
}

// Two stages of two replicas each beside one that is faster: the middle of the run is irregular,
// but a replica of the second takes a micro-batch and an all-reduce a round, (49 + 32) / 2 ms.
TEST(DealtPipeline, AllReducesKeepTheirDevicesBusy) {
  const Json answer = solve("pipedream", R"({"schema": "orrery-problem", "version": 1, "layers": [
      {"forward": "9 ms", "backward": "3 ms", "output": "1 MB", "parameters": "17 MB"},
      {"forward": "15 ms", "backward": "34 ms", "output": "2 MB", "parameters": "16 MB"},
      {"forward": "24 ms", "backward": "48 ms", "output": "14 MB", "parameters": "0 MB"}],
      "levels": [{"workers": 5, "bandwidth": "1 GB/s"}]})");
  EXPECT_NEAR(number(answer, "simulated_s"), 0.0405, 1e-9);
}

// The planner says how long its plan takes when it is run: never less than its bottleneck.
TEST(DealtPipeline, ThePlannerRunsItsPlan) {
  EXPECT_TRUE(rc::check([] {
    std::string layers;
    for (int n = *rc::gen::inRange(2, 6); n > 0; --n) {
      layers += fmt::format(
          R"({}{{"forward": "{} ms", "backward": "{} ms", "output": "{} MB", "parameters": "{} MB"}})",
          layers.empty() ? "" : ", ", *rc::gen::inRange(1, 30), *rc::gen::inRange(1, 60),
          *rc::gen::inRange(0, 20), *rc::gen::inRange(0, 40));
    }
    const Json answer = solve(
        "pipedream", fmt::format(R"({{"schema": "orrery-problem", "version": 1, "layers": [{}],
        "levels": [{{"workers": {}, "bandwidth": "1 GB/s"}}]}})",
                                 layers, *rc::gen::inRange(1, 9)));
    RC_ASSERT(number(answer, "simulated_s") >= number(answer, "bottleneck_s") * (1 - 1e-9));
  }));
}

}  // namespace
}  // namespace orrery::search
