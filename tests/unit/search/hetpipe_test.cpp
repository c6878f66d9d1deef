// SPDX-License-Identifier: Apache-2.0
// HetPipe's virtual workers on nodes of different GPUs.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "tests/unit/search/planner_answers.hpp"

namespace orrery::search {
namespace {

// Four layers of 3 ms, a fast and a half as fast node of two GPUs. By node: 6 ms and 12 ms, but the
// fast worker waits for the clock of the slow one. One GPU of each node: three layers on the fast
// one, 9 ms twice.
TEST(HetPipe, ComparesAllocations) {
  const Json answer = solve("hetpipe", R"({"schema": "orrery-problem", "version": 1,
      "layers": [{"forward": "1 ms", "backward": "2 ms", "count": 4}],
      "nodes": [{"gpus": 2, "memory": "24 GB"}, {"gpus": 2, "speed": 0.5, "memory": "24 GB"}],
      "bandwidth_inside": "12 GB/s", "bandwidth_between": "7 GB/s"})");
  const Json& rates = *answer.find("mini_batches_per_s_by_policy");
  EXPECT_NEAR(number(rates, "np"), 2 / 0.012, 1e-6);
  EXPECT_NEAR(number(rates, "ed"), 2 / 0.009, 1e-6);
  EXPECT_EQ(answer.find("policy")->as_string(), "ed");
  EXPECT_NEAR(number(answer, "mini_batches_per_s"), 2 / 0.009, 1e-6);
}

// Four layers of 3 s on four or two equal GPUs: one mini-batch in flight is
// alone on its way of 12 s, two make twice as many, from as many as GPUs on the slowest stage alone
// counts.
TEST(HetPipe, MiniBatchesInFlightLimitTheRate) {
  const auto rates = [](int in_flight) {
    const Json answer = solve("hetpipe", fmt::format(R"({{"schema": "orrery-problem", "version": 1,
      "layers": [{{"forward": "1 s", "backward": "2 s", "count": 4}}],
      "nodes": [{{"gpus": 4, "memory": "80 GB"}}, {{"gpus": 4, "memory": "80 GB"}}],
      "bandwidth_inside": "1000 GB/s", "bandwidth_between": "1000 GB/s", "in_flight": {}}})",
                                                     in_flight));
    const Json& by_policy = *answer.find("mini_batches_per_s_by_policy");
    return std::array<double, 2>{number(by_policy, "np"), number(by_policy, "ed")};
  };
  const double np = 2 / 12.0;  // two workers of four GPUs
  const double ed = 4 / 12.0;  // four of two
  for (int in_flight = 1; in_flight <= 6; ++in_flight) {
    const auto [of_node, of_pairs] = rates(in_flight);
    EXPECT_NEAR(of_node, np * std::min(in_flight, 4), 1e-9) << in_flight;
    EXPECT_NEAR(of_pairs, ed * std::min(in_flight, 2), 1e-9) << in_flight;
  }
}

// Transfers are on the way, too: of 6 GB at 3 GB/s each way between two stages of 6 s.
TEST(HetPipe, TransfersAreOnTheWay) {
  const Json answer = solve("hetpipe", R"({"schema": "orrery-problem", "version": 1,
      "layers": [{"forward": "2 s", "backward": "4 s", "output": "6 GB", "count": 2}],
      "nodes": [{"gpus": 2, "memory": "80 GB"}], "bandwidth_inside": "3 GB/s",
      "bandwidth_between": "3 GB/s", "in_flight": 1, "policy": "np"})");
  EXPECT_NEAR(number(answer, "mini_batches_per_s"), 1 / 16.0, 1e-12);
}

// The fastest node shares virtual workers with the slowest, the two between with each other.
TEST(HetPipe, PairsFastNodesWithSlowOnes) {
  const Json answer = solve("hetpipe", R"({"schema": "orrery-problem", "version": 1,
      "layers": [{"forward": "1 ms", "backward": "2 ms", "count": 16}],
      "nodes": [{"gpus": 4, "speed": 2, "memory": "24 GB"}, {"gpus": 4, "memory": "24 GB"},
                {"gpus": 4, "speed": 4, "memory": "24 GB"},
                {"gpus": 4, "speed": 0.5, "memory": "24 GB"}],
      "bandwidth_inside": "12 GB/s", "bandwidth_between": "7 GB/s", "policy": "hd"})");
  std::vector<std::vector<std::int64_t>> workers;
  for (const Json& worker : answer.find("workers")->as_array()) {
    workers.emplace_back();
    for (const Json& node : worker.find("gpus_by_node")->as_array()) {
      workers.back().push_back(node.as_integer());
    }
    std::sort(workers.back().begin(), workers.back().end());
  }
  const std::vector<std::int64_t> ends = {2, 2, 3, 3};
  const std::vector<std::int64_t> middle = {0, 0, 1, 1};
  EXPECT_EQ(workers, (std::vector<std::vector<std::int64_t>>{ends, ends, middle, middle}));
}

}  // namespace
}  // namespace orrery::search
