// SPDX-License-Identifier: Apache-2.0
// NanoFlow's and TPI-LLM's planners and the bounds of serving: published values, cases by hand.
#include <fmt/format.h>
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

// Whatever else is stated, the answer is that the parameters do not fit.
TEST(ServingBounds, SayWhatDoesNotFit) {
  const Json answer = solve("serving-bounds", R"({"schema": "orrery-problem", "version": 1,
      "memory": "10 GiB", "memory_bandwidth": "1 TB/s", "compute": "100 TFLOP/s",
      "parameters": 1e10, "layers": 10, "hidden": 1024, "kv_heads": 2, "head_dim": 64,
      "ffn_hidden": 4096, "tokens": 512, "prompt": 100, "output": 300})");
  EXPECT_THAT(answer.dump(), testing::HasSubstr("the parameters take 18.6 GiB, the memory of the "
                                                "GPUs is 10 GiB"));
}

// Operations of one class share nothing: a layer takes them all, however short they are. With
// several, no less than sharing at any time allows and no more than one after the other.
TEST(NanoFlow, TakesAllItsWork) {
  const auto of = [](const char* first, const char* second, const char* kind) {
    return solve("nanoflow", fmt::format(R"({{"schema": "orrery-problem", "version": 1,
      "tokens": 2048, "first_tokens": [768], "operations": [
      {{"name": "a", "class": "compute", "time": "{}"}},
      {{"name": "b", "class": "{}", "time": "{}", "after": ["a"]}}]}})",
                                         first, kind, second));
  };
  EXPECT_NEAR(number(of("5 ms", "5 ms", "compute"), "shared_time_s"), 0.01, 1e-7);
  EXPECT_NEAR(number(of("50 ms", "1 ms", "compute"), "shared_time_s"), 0.051, 1e-6);
  EXPECT_NEAR(number(of("1 us", "2 us", "compute"), "shared_time_s"), 3e-6, 1e-10);
  for (const char* kind : {"memory", "network"}) {
    const Json answer = of("1 ms", "3 ms", kind);
    EXPECT_GE(number(answer, "shared_time_s"), number(answer, "sharing_bound_s") * (1 - 1e-5));
    EXPECT_LE(number(answer, "shared_time_s"), 0.004 * (1 + 1e-5));
  }
}

// Without products there is no rate of products, and all else is answered.
TEST(NanoFlow, NeedsNoProducts) {
  const Json answer = solve("nanoflow", R"({"schema": "orrery-problem", "version": 1,
      "tokens": 512, "operations": [{"name": "a", "class": "memory", "time": "5 ms"},
      {"name": "b", "class": "network", "time": "5 ms", "after": ["a"]}]})");
  EXPECT_EQ(answer.find("compute_tokens_per_s_per_gpu"), nullptr);
  EXPECT_GE(number(answer, "shared_time_s"), 0.005);
  EXPECT_LE(number(answer, "shared_time_s"), 0.01);
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
  EXPECT_THROW(edge(R"("devices": 8, "shares": [0.5, 0.5])" + rest), Error);
}

std::string shape(int heads, int kv_heads) {
  return fmt::format(R"("network": {{"layers": 4, "hidden": 1024, "ffn_hidden": 4096, "heads": {},
      "kv_heads": {}, "vocab": 1000}}, "memory_bandwidth": "10 GB/s")",
                     heads, kv_heads);
}

// A window of all blocks or more holds the network once, as no window at all does.
TEST(TpiLlm, NoWindowHoldsMoreThanTheNetwork) {
  const auto of = [](const std::string& window) {
    return edge(R"("devices": 4, "disk_bandwidth": "1 GB/s", "window": )" + window + ", " +
                shape(16, 16));
  };
  const Json all = of("0");
  for (const char* window : {"11", "12", "100", "4096"}) {
    EXPECT_EQ(*of(window).find("memory_bytes"), *all.find("memory_bytes")) << window;
    EXPECT_EQ(number(of(window), "token_s"), number(all, "token_s")) << window;
  }
  EXPECT_LT(number(of("8"), "peak_memory_bytes"), number(all, "peak_memory_bytes"));
  // Devices that hold everything need no disk.
  const Json resident = edge(R"("devices": 4, )" + shape(16, 16));
  EXPECT_NEAR(number(resident, "token_s") / number(all, "token_s"), 1, 1e-9);
}

// The measured blocks with a slower disk: 63 ms a layer, 56 where every second FFN block stays, and
// memory for those that stay.
TEST(TpiLlm, FfnBlocksThatStayAreNotLoaded) {
  const auto measured = [](const std::string& more) {
    return edge(R"("devices": 4, "window": 4, "blocks": {"attention": "11 ms", "ffn": "17 ms",
        "load_attention": "18 ms", "load_ffn": "45 ms", "reduce": "14 ms", "layers": 60})" +
                more);
  };
  EXPECT_NEAR(number(measured(""), "last_layer_s"), 0.063, 1e-9);
  const Json kept = measured(R"(, "keep_ffn": 2)");
  EXPECT_TRUE(kept.find("loose")->as_bool());
  const auto& layers = kept.find("layer_s")->as_array();
  EXPECT_NEAR(layers[58].as_number() + layers[59].as_number(), 0.112, 1e-9);

  const auto of = [](const std::string& keep) {
    return edge(R"("devices": 4, "disk_bandwidth": "1 GB/s", "window": 2, )" + keep +
                shape(16, 16));
  };
  const auto worker = [](const Json& answer) {
    return answer.find("memory_bytes")->as_array().back().as_number();
  };
  const Json none = of("");
  const Json some = of(R"("keep_ffn": 2, )");
  const Json all = of(R"("keep_ffn": 1, )");
  const double ffn = 4 * (3 * 1024.0 * 4096 / 4 + 1024);
  EXPECT_NEAR(worker(some) - worker(none), 2 * ffn, 1);
  EXPECT_LT(number(some, "token_s"), number(none, "token_s"));
  EXPECT_LT(number(all, "token_s"), number(some, "token_s"));
  EXPECT_THROW(edge(R"("devices": 4, "keep_ffn": 2, )" + shape(16, 16)), Error);
}

TEST(TpiLlm, HeadsAreWhole) {
  EXPECT_THROW(edge(R"("devices": 4, )" + shape(3, 3)), Error);
  EXPECT_THROW(edge(R"("devices": 4, )" + shape(16, 3)), Error);
  EXPECT_THROW(edge(R"("devices": 32, )" + shape(16, 16)), Error);
  // Beyond one key-value head a device, its keys and values do not shrink.
  const auto worker = [](const char* devices, int kv_heads) {
    return edge(fmt::format(R"("devices": {}, {})", devices, shape(16, kv_heads)))
        .find("memory_bytes")
        ->as_array()
        .back()
        .as_number();
  };
  const double layer = 4.0 * 4 * (2 * 1024 + 3.0 * 4096 * 1024 / 8);  // but attention
  EXPECT_NEAR(worker("8", 2), layer + 16.0 * 2 * 1024 * 1024 * (1.0 / 8 + 1.0 / 16), 1);
  EXPECT_NEAR(worker("8", 16), layer + 16.0 * 4 * 1024 * 1024 / 8, 1);
}

}  // namespace
}  // namespace orrery::search
