// SPDX-License-Identifier: Apache-2.0
// Superpipeline's two numbers: limits, the stall formula, memory, and what is refused.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "sim/engine/tiers.hpp"
#include "tests/unit/search/planner_answers.hpp"

namespace orrery::search {
namespace {

// Twelve partitions of 1 GB that compute 10 ms; a load takes 1 GB over the rate.
Json pipeline(double load_ms, const std::string& more) {
  return solve("superpipeline",
               fmt::format(R"({{"schema": "orrery-problem", "version": 1, "partitions": 12,
      "weights": "1 GB", "forward": "10 ms", "host_bandwidth": "{} GB/s"{}}})",
                           1000 / load_ms, more));
}

const Json& choice(const Json& answer, std::size_t k) {
  return answer.find("choices")->as_array().at(k - 1);
}

// Inference is cyclic: one partition at a time is loaded and computed in turn, two hide a load that
// is shorter than the compute, and with all of them nothing travels.
TEST(Superpipeline, LimitsOfInference) {
  const Json quick = pipeline(8, "");
  EXPECT_NEAR(number(choice(quick, 1), "round_s"), 12 * 0.018, 1e-6);
  EXPECT_NEAR(number(choice(quick, 2), "round_s"), 12 * 0.010, 1e-6);
  EXPECT_EQ(number(quick, "k"), 2);
  EXPECT_NEAR(number(quick, "saving"), 1 - 2.0 / 12, 1e-9);
  EXPECT_GE(number(quick, "stall_s"), 0);
  EXPECT_NEAR(number(choice(quick, 1), "stall_s"), 12 * 0.008, 1e-6);
  const Json slow = pipeline(40, "");
  EXPECT_NEAR(number(choice(slow, 3), "round_s"), 12 * 0.040, 1e-6);
  EXPECT_EQ(number(slow, "k"), 12);
  EXPECT_NEAR(number(slow, "round_s"), 0.120, 1e-6);
}

// The published formula for every number that has a whole number of groups in a round.
TEST(Superpipeline, FollowsTheFormula) {
  for (const double load : {4.0, 8.0, 15.0, 40.0}) {
    const Json answer = pipeline(load, "");
    const auto& choices = answer.find("choices")->as_array();
    for (std::size_t index = 0; index < choices.size() && index < 6; ++index) {
      const int k = static_cast<int>(number(choices[index], "k"));
      double least = 1;
      for (int moved = 1; moved <= k; ++moved) {
        const Seconds each = sim::steady_partition_time(Seconds(0.01), Seconds(load * 1e-3),
                                                        Seconds(), k, moved, false);
        least = std::min(least, 12 * each.value());
      }
      EXPECT_NEAR(number(choices[index], "round_s"), least, 1e-6) << load << " ms, k = " << k;
    }
  }
}

// Groups that do not end with a round: what is loaded in one round is missing in another, and no
// mean is less than what every round loads.
TEST(Superpipeline, RoundsLoadWhatTheyNeed) {
  for (const int partitions : {7, 12, 16}) {
    const Json answer =
        solve("superpipeline",
              fmt::format(R"({{"schema": "orrery-problem", "version": 1, "partitions": {},
      "weights": "80 MB", "forward": "4 ms", "host_bandwidth": "16 GB/s"}})",
                          partitions));
    double time = 1e9;
    for (const Json& one : answer.find("choices")->as_array()) {
      if (2 * number(one, "k") <= partitions) {  // no more than half stays: all others travel
        EXPECT_GE(number(one, "round_s"), partitions * 0.005 * (1 - 1e-9));
      }
      EXPECT_LE(number(one, "round_s"), time * (1 + 1e-9)) << partitions;
      time = number(one, "round_s");
    }
  }
}

TEST(Superpipeline, RefusesWhatSimulatedTimeCannotHold) {
  EXPECT_THROW(pipeline(1e12, ""), Error);
  EXPECT_THROW(pipeline(40, R"(, "backward": "10 ms", "gradients": "1e18 B")"), Error);
}

// Memory grows by a partition with k, time never does; a pass is no shorter than its transfers.
TEST(Superpipeline, TrainingTradesMemoryForTime) {
  const Json answer = pipeline(
      25, R"(, "backward": "20 ms", "gradients": "1 GB", "latency": "20 us", "half_duplex": true)");
  double time = 1e9;
  for (const Json& one : answer.find("choices")->as_array()) {
    EXPECT_NEAR(number(one, "peak_bytes"), number(one, "k") * 2e9, 1);
    EXPECT_LE(number(one, "round_s"), time * (1 + 1e-9));
    EXPECT_GE(number(one, "round_s"), 12 * 0.030 * (1 - 1e-9));
    time = number(one, "round_s");
  }
  EXPECT_EQ(number(answer, "compute_s"), 0.36);
}

TEST(Superpipeline, KeepsToTheMemory) {
  const Json answer = pipeline(40, R"(, "memory": "6 GB", "other_memory": "2.5 GB")");
  EXPECT_LE(number(answer, "k"), 3);
  EXPECT_EQ(answer.find("choices")->as_array().size(), 3U);
  EXPECT_FALSE(
      pipeline(40, R"(, "memory": "1 GB", "other_memory": "1 kB")").find("feasible")->as_bool());
  EXPECT_THROW(pipeline(40, R"(, "gradients": "1 GB")"), Error);
}

}  // namespace
}  // namespace orrery::search
