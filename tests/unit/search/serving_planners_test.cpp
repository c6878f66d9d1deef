// SPDX-License-Identifier: Apache-2.0
// NanoFlow's and TPI-LLM's planners and the bounds of serving: published values, cases by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/error.hpp"
#include "search/planner.hpp"
#include "search/problems/nano_batches.hpp"
#include "tests/unit/search/planner_answers.hpp"

namespace orrery::search {
namespace {

NanoProblem problem_of(std::vector<NanoProblem::Operation> operations) {
  NanoProblem problem;
  problem.operations = std::move(operations);
  problem.tokens = 256;
  return problem;
}

// a (compute 4), b (memory 4), c (compute 4): while one half is in b the other computes, so a
// period is as long as the compute of both halves.
TEST(NanoBatches, TwoHalvesHideEachOthersMemory) {
  const NanoProblem problem = problem_of({{"a", 0, 4, {}}, {"b", 1, 4, {0}}, {"c", 0, 4, {1}}});
  const NanoBatches halves(problem, 128);
  const auto ordered = halves.order();
  ASSERT_FALSE(ordered.empty());
  EXPECT_NEAR(ordered.front().period, 8, 1e-6);
}

// One operation of each class in a chain, equal halves: each class is busy for all of its own time,
// and a half cannot run faster than its chain.
TEST(NanoBatches, AChainBoundsThePeriod) {
  const NanoProblem problem = problem_of({{"a", 0, 2, {}}, {"b", 1, 2, {0}}, {"c", 2, 2, {1}}});
  const auto ordered = NanoBatches(problem, 128).order();
  ASSERT_FALSE(ordered.empty());
  EXPECT_NEAR(ordered.front().period, 3, 1e-6);
}

TEST(NanoBatches, SharesAreNeverBetterThanTheBoundNorWorseThanInTurn) {
  for (const double memory : {1.0, 4.0, 9.0}) {
    for (const double network : {0.5, 3.0}) {
      const NanoProblem problem = problem_of(
          {{"a", 0, 6, {}}, {"b", 1, memory, {0}}, {"c", 0, 5, {1}}, {"d", 2, network, {2}}});
      const NanoBatches planning(problem, 128);
      for (const auto& order : planning.order()) {
        const auto shared = planning.share(order, sim::measured_curves());
        const double bound = sim::nano_batch_sharing()
                                 .time({Seconds(11), Seconds(memory), Seconds(network)})
                                 .value();
        EXPECT_GE(shared.period, bound * (1 - 1e-7));
        EXPECT_LE(shared.period, 11 + memory + network + 1e-7);
        for (const auto& phase : shared.phases) {
          double sum = 0;
          for (const double share : phase.share) {
            sum += share;
          }
          EXPECT_LE(sum, phase.time * (1 + 1e-9));
        }
      }
    }
  }
}

TEST(NanoFlowPlanner, SaysWhatIsWrong) {
  const auto told = [](const std::string& operations) {
    try {
      solve("nanoflow", R"({"schema": "orrery-problem", "version": 1, "tokens": 2048,
                            "operations": )" +
                            operations + "}");
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_THAT(told("[]"), ::testing::HasSubstr("there are no operations"));
  EXPECT_THAT(told(R"([{"name": "a", "class": "gpu", "time": "1 ms"}])"),
              ::testing::HasSubstr("/operations/0/class"));
  EXPECT_THAT(told(R"([{"name": "a", "class": "compute", "time": "1 ms", "after": ["b"]}])"),
              ::testing::HasSubstr("no operation before this one"));
}

// The closed forms at other numbers than the published ones: 1 GPU of 10 GB, a model of 1e9
// parameters whose cache takes 2 x 10 x 128 x 2 bytes a token.
TEST(ServingBounds, FollowTheirFormulas) {
  const Json answer = solve("serving-bounds", R"({"schema": "orrery-problem", "version": 1,
      "memory": "10 GB", "memory_bandwidth": "1 TB/s", "compute": "100 TFLOP/s",
      "parameters": 1e9, "layers": 10, "hidden": 1024, "kv_heads": 2, "head_dim": 64,
      "prompt": 100, "output": 300})");
  EXPECT_DOUBLE_EQ(number(answer, "kv_bytes_per_token"), 5120);
  const double requests = 8e9 / (5120.0 * 250);
  EXPECT_DOUBLE_EQ(number(answer, "requests"), requests);
  EXPECT_DOUBLE_EQ(number(answer, "dense_batch"), requests * 400 / 300);
  EXPECT_DOUBLE_EQ(number(answer, "memory_s"), 0.01);
  EXPECT_DOUBLE_EQ(number(answer, "optimal_tokens_per_s_per_gpu"), 50'000);
  EXPECT_DOUBLE_EQ(number(answer, "optimal_requests_per_s"), 125);
}

Json edge(const std::string& members) {
  return solve("tpi-llm", R"({"schema": "orrery-problem", "version": 1, )" + members + "}");
}

TEST(TpiLlm, AllReducesTakeTheirMessagesOfLatency) {
  const Json answer = edge(R"("devices": 8, "link": {"latency": "1 ms", "hops": 4})");
  EXPECT_DOUBLE_EQ(number(answer, "star_s"), 0.008);
  EXPECT_DOUBLE_EQ(number(answer, "tree_s"), 0.016);
  EXPECT_DOUBLE_EQ(number(answer, "ring_s"), 0.056);
}

// Uneven shares: the device with most of the columns sets the pace and holds the most.
TEST(TpiLlm, UnevenSharesCost) {
  const std::string rest = R"(, "window": 2, "disk_bandwidth": "1 GB/s",
      "memory_bandwidth": "10 GB/s", "network": {"layers": 4, "hidden": 1024, "ffn_hidden": 4096,
      "heads": 16, "vocab": 1000})";
  const Json even = edge(R"("devices": 4)" + rest);
  const Json uneven = edge(R"("shares": [0.1, 0.2, 0.3, 0.4])" + rest);
  EXPECT_GT(number(uneven, "token_s"), 1.4 * number(even, "token_s"));
  const auto& memory = uneven.find("memory_bytes")->as_array();
  EXPECT_GT(memory[3].as_number(), memory[2].as_number());
  EXPECT_THROW(edge(R"("shares": [0.5, 0.2])" + rest), Error);
}

}  // namespace
}  // namespace orrery::search
