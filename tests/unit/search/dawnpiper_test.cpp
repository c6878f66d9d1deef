// SPDX-License-Identifier: Apache-2.0
// DawnPiper's cuts where memory is short, and where it is not.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "search/problems/chain_halves.hpp"
#include "tests/unit/search/planner_answers.hpp"

namespace orrery::search {
namespace {

std::vector<int> stage_sizes(const Json& answer) {
  std::vector<int> sizes;
  for (const Json& stage : answer.find("stages")->as_array()) {
    sizes.push_back(static_cast<int>(number(stage, "last") - number(stage, "first")));
  }
  return sizes;
}

// Four to one versions of the weights leave the first devices a layer each.
constexpr const char* kManyVersions = R"({"schema": "orrery-problem", "version": 1, "layers": [
    {"forward": "4 ms", "backward": "31 ms", "parameters": "181 MB", "activations": "148 MB",
     "count": 8}], "devices": 4, "memory": "{} MB", "host_bandwidth": "12 GB/s",
    "asynchronous": true})";

std::string many_versions_in(const std::string& megabytes) {
  std::string text = kManyVersions;
  return text.replace(text.find("{} MB"), 2, megabytes);
}

TEST(DawnPiperPlanner, FirstDevicesTakeWhatTheirVersionsLeaveThem) {
  const Json answer = solve("dawnpiper", many_versions_in("1000"));
  ASSERT_EQ(answer.find("feasible"), nullptr);
  EXPECT_EQ(stage_sizes(answer), (std::vector<int>{1, 1, 2, 4}));
  EXPECT_DOUBLE_EQ(number(answer, "bottleneck_s"), 0.140);
}

// 4 x 181 = 724 MB is the least that any cut needs: 1 | 1 | 2 | 4, or 1 | 1 | 3 | 3.
TEST(DawnPiperPlanner, OnlyParametersThatFitNowhereAreRefused) {
  EXPECT_EQ(solve("dawnpiper", many_versions_in("725")).find("feasible"), nullptr);
  EXPECT_NE(solve("dawnpiper", many_versions_in("723")).find("feasible"), nullptr);
}

// By shares of time the first two of five devices would end with a stage of 276 ms.
TEST(DawnPiperPlanner, PlentyOfMemoryGivesTheLeastLongestStage) {
  std::string layers;
  for (const char* time : {"141", "102", "6", "90", "69", "72", "132", "144", "159"}) {
    layers += std::string(layers.empty() ? "" : ", ") + R"({"backward": ")" + time + R"( ms"})";
  }
  const Json answer =
      solve("dawnpiper", R"({"schema": "orrery-problem", "version": 1, "layers": [)" + layers +
                             R"(], "devices": 5, "memory": "80 GB",
                                "host_bandwidth": "12 GB/s"})");
  EXPECT_NEAR(number(answer, "bottleneck_s"), 0.243, 1e-12);
}

// Costs of 3, -2, 3 and 1: where layers may cost less than nothing every cut is tried.
TEST(BalancedHalves, TryEveryCutWhereCostsMayFall) {
  const std::vector<double> costs = {3, -2, 3, 1};
  BalancedHalves halves(
      [&](int first, int last, int) {
        double sum = 0;
        for (int i = first; i < last; ++i) {
          sum += costs[static_cast<std::size_t>(i)];
        }
        return sum;
      },
      false);
  const HalfCut best = halves.best({0, 4, 0, 2});
  EXPECT_EQ(best.cost, 3);  // 3 | 2, 1 | 4 and 4 | 1
  EXPECT_EQ(best.cut, 1);
}

}  // namespace
}  // namespace orrery::search
