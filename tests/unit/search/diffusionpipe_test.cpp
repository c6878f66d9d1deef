// SPDX-License-Identifier: Apache-2.0
// Frozen layers in the bubbles of a pipeline.
#include <gtest/gtest.h>

#include <vector>

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

}  // namespace
}  // namespace orrery::search
