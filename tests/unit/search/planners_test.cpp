// SPDX-License-Identifier: Apache-2.0
// Published answers of planners, and exact cases worked by hand.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "base/csv.hpp"
#include "base/error.hpp"
#include "search/planner.hpp"
#include "tests/folders.hpp"
#include "tests/unit/search/planner_answers.hpp"

namespace orrery::search {
namespace {

std::string message_of(std::string_view name, const std::string& text) {
  try {
    solve(name, text);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// Numbers that no answer can hold end in a message that names the problem.
TEST(PlannersTest, AbsurdTimesAreNamed) {
  EXPECT_EQ(message_of("dip", R"({"schema": "orrery-problem", "version": 1, "modules": [
                {"name": "a", "instances": 1, "times": ["1e-30 ms"]},
                {"name": "b", "instances": 1, "times": ["13 ms"]}]})"),
            "problem: module \"b\" takes 1.3e+31 times as long as \"a\" (at most 1048576 times)");
  EXPECT_EQ(message_of("parameter-server", R"({"schema": "orrery-problem", "version": 1,
                "workers": 4, "parameters": "1 GB", "server_bandwidth": "1 GB/s",
                "worker_bandwidth": "1 GB/s", "compute": "0 s"})"),
            "problem: /compute: must be greater than zero");
  EXPECT_EQ(message_of("infinipipe", R"({"schema": "orrery-problem", "version": 1,
                "sequences": [16777216], "chunk_tokens": 16384, "stages": 4,
                "layers_per_stage": 8, "per_token": "20 ns", "per_token_pair": "2 ps",
                "activations_per_token": "300 kB", "input_per_token": "8 kB", "memory": "60 GB"})"),
            "problem: /chunk_tokens: the sequences would have more than 4096 slices");
  const std::string of_example(find_planner("parameter-server", "test").example);
  const std::size_t at = of_example.find(" ms\"");
  ASSERT_NE(at, std::string::npos);
  EXPECT_EQ(message_of("parameter-server", std::string(of_example).insert(at, "e15"))
                .find("problem: a time of"),
            0U);
}

// PipeDream's released V100 profiles; the plans are those of its optimizer (strategies O16). The
// graphs are flattened into states, which may differ by negative amounts.
struct Golden {
  const char* model;
  int workers;
  double gigabytes_per_s;
  double bottleneck;
  double speedup;
  double over_data_parallel;
  // The end of each stage, 0 where several cuts tie, and its replicas.
  std::vector<std::pair<int, int>> stages;
};

TEST(PlannersTest, PipeDreamGivesTheReleasedPlans) {
  const std::filesystem::path path =
      orrery::shared_folder() / "strategies/data/pipedream_chains.csv";
  if (!std::filesystem::exists(path)) {
    GTEST_SKIP() << "no released profiles beside the source tree";
  }
  const CsvTable table = read_csv_file(path.string());
  const Golden goldens[] = {
      {"vgg16", 4, 1.0, 0.2055, 3.272, 2.838, {{17, 3}, {40, 1}}},
      {"vgg16", 8, 1.0, 0.1038, 6.477, 3.142, {{24, 7}, {40, 1}}},
      {"vgg16", 16, 1.25, 0.0548, 12.274, 2.661, {{24, 13}, {31, 2}, {40, 1}}},
      {"alexnet", 4, 1.0, 0.0342, 2.494, 5.980, {{0, 3}, {0, 1}}},
      {"alexnet", 16, 1.25, 0.0151, 5.651, 3.388, {{0, 15}, {0, 1}}},
      {"resnet50", 4, 1.0, 0.1629, 2.722, 1.151, {{142, 2}, {240, 2}}},
      {"resnet50", 16, 1.25, 0.0438, 10.113, 1.069, {{147, 8}, {216, 5}, {240, 3}}}};
  for (const Golden& golden : goldens) {
    std::string layers;
    for (std::size_t row = 0; row < table.num_rows(); ++row) {
      if (table.cell(row, "model") == golden.model) {
        layers += fmt::format(
            R"({}{{"state_time_s": {}e-3, "output": "{} B", "state_parameters_bytes": {}}})",
            layers.empty() ? "" : ",", table.cell(row, "compute_ms_fb"),
            table.cell(row, "cut_activation_bytes"), table.cell(row, "parameter_bytes"));
      }
    }
    const Json answer = solve(
        "pipedream", fmt::format(R"({{"schema": "orrery-problem", "version": 1, "layers": [{}],
                        "levels": [{{"workers": {}, "bandwidth": "{} GB/s"}}]}})",
                                 layers, golden.workers, golden.gigabytes_per_s));
    EXPECT_NEAR(number(answer, "bottleneck_s"), golden.bottleneck, 1e-4) << golden.model;
    EXPECT_NEAR(number(answer, "speedup_over_one_device"), golden.speedup, 1e-3) << golden.model;
    EXPECT_NEAR(number(answer, "data_parallel_s") / number(answer, "bottleneck_s"),
                golden.over_data_parallel, 1e-3)
        << golden.model;
    const auto& stages = answer.find("stages")->as_array();
    ASSERT_EQ(stages.size(), golden.stages.size()) << golden.model;
    for (std::size_t stage = 0; stage < stages.size(); ++stage) {
      const auto [last, replicas] = golden.stages[stage];
      EXPECT_EQ(stages[stage].find("replicas")->as_integer(), replicas) << golden.model;
      if (last > 0) {
        EXPECT_EQ(stages[stage].find("last")->as_integer(), last) << golden.model;
      }
    }
  }
}

// A slice of l tokens after c tokens takes 10 (c + l / 2) l: slices get shorter along the sequence.
TEST(PlannersTest, TeraPipeCutsShorterSlicesLater) {
  const Json answer = solve("terapipe", R"({"schema": "orrery-problem", "version": 1,
      "stages": 16, "sequence": 256, "quantum": 8, "base": "1 us", "per_token": "5 us",
      "per_pair": "0.2 us", "gap": "0 s"})");
  const Json::Array& slices =
      answer.find("micro_batches")->as_array().front().find("slices")->as_array();
  ASSERT_GT(slices.size(), 3u);
  for (std::size_t i = 1; i < slices.size(); ++i) {
    EXPECT_LE(slices[i].as_integer(), slices[i - 1].as_integer() + 8);
  }
  EXPECT_GT(slices.front().as_integer(), slices.back().as_integer());
}

TEST(PlannersTest, TeraPipeCutsEvenlyWithoutContextCosts) {
  const Json answer = solve("terapipe", R"({"schema": "orrery-problem", "version": 1,
      "stages": 4, "sequence": 64, "quantum": 8, "base": "10 us", "per_token": "5 us",
      "gap": "0 s"})");
  const Json::Array& slices =
      answer.find("micro_batches")->as_array().front().find("slices")->as_array();
  for (const Json& slice : slices) {
    EXPECT_EQ(slice.as_integer(), slices.front().as_integer());
  }
}

TEST(PlannersTest, FlexSpGivesEqualSequencesOneDegree) {
  const Json answer = solve("flexsp", R"({"schema": "orrery-problem", "version": 1,
      "gpus": 8, "sequences": [4096, 4096, 4096, 4096], "tokens_per_gpu": 2048,
      "per_token": "0.2 us", "per_token_squared": "5 ps", "all_to_all_per_token": "2 MB",
      "all_to_all_bandwidth": ["120 GB/s", "104 GB/s", "96 GB/s"]})");
  for (const Json& part : answer.find("micro_batches")->as_array()) {
    for (const Json& group : part.find("groups")->as_array()) {
      EXPECT_EQ(group.find("degree")->as_integer(), 2);
    }
  }
}

TEST(PlannersTest, FlexSpSaysWhenNothingFits) {
  const Json answer = solve("flexsp", R"({"schema": "orrery-problem", "version": 1,
      "gpus": 2, "sequences": [5000], "tokens_per_gpu": 2048, "per_token": "0.2 us",
      "per_token_squared": "5 ps", "all_to_all_per_token": "2 MB",
      "all_to_all_bandwidth": ["120 GB/s"]})");
  EXPECT_FALSE(answer.find("feasible")->as_bool());
}

TEST(PlannersTest, FlexSpNamesTheMicroBatchesThatItNeeds) {
  const auto needed = [](const std::string& sequences, int most) {
    const Json answer =
        solve("flexsp", fmt::format(R"({{"schema": "orrery-problem", "version": 1, {},
        "per_token": "0.18 us", "per_token_squared": "5 ps", "all_to_all_per_token": "2 MB",
        "degree": 1, "max_micro_batches": {}}})",
                                    sequences, most));
    return answer.find("reason") == nullptr ? "" : answer.find("reason")->as_string();
  };
  // A GPU holds one of them: each fits, but not all of them two micro-batches.
  const std::string three = R"("gpus": 1, "sequences": [1000, 1000, 1000], "tokens_per_gpu": 1024,
      "all_to_all_bandwidth": [])";
  EXPECT_EQ(needed(three, 2),
            "the sequences do not fit 2 micro-batches: set \"max_micro_batches\" to 3");
  EXPECT_EQ(needed(three, 3), "");
  // Two micro-batches hold them, but one of these not as greedy fills it.
  const std::string seven = R"("gpus": 2, "sequences": [9, 6, 4, 3, 3, 4, 8], "tokens_per_gpu": 10,
      "all_to_all_bandwidth": ["1 GB/s"])";
  EXPECT_EQ(needed(seven, 2), "");
  EXPECT_EQ(needed(seven + R"(, "greedy": true)", 1),
            "the sequences do not fit 1 micro-batches: set \"max_micro_batches\" to 3");
  EXPECT_EQ(needed(seven + R"(, "greedy": true)", 3), "");
}

// V shape, F = 1 and B = 2 on p devices: the body takes what a device has to do, with p
// micro-batches in flight (strategies 4.11b).
TEST(PlannersTest, TesselReachesTheLoadOnTheVShape) {
  for (const int p : {2, 3, 4}) {
    std::string blocks;
    for (int s = 0; s < 2 * p; ++s) {
      const int device = s < p ? s : 2 * p - 1 - s;
      blocks += fmt::format(R"({}{{"devices": [{}], "time": {}, "memory": {}{}}})",
                            s == 0 ? "" : ",", device, s < p ? 1 : 2, s < p ? 1 : -1,
                            s == 0 ? "" : fmt::format(R"(, "after": [{}])", s - 1));
    }
    const Json answer =
        solve("tessel", fmt::format(R"({{"schema": "orrery-problem", "version": 1, "devices": {0},
                                  "in_flight": {0}, "memory": {0}, "blocks": [{1}]}})",
                                    p, blocks));
    EXPECT_EQ(answer.find("period")->as_integer(), 3) << p;
  }
}

// One micro-batch in memory at a time: the body is the whole round trip.
TEST(PlannersTest, TesselKeepsWithinMemory) {
  const Json answer = solve("tessel", R"({"schema": "orrery-problem", "version": 1,
      "devices": 2, "in_flight": 2, "memory": 1,
      "blocks": [{"devices": [0], "time": 1, "memory": 1},
                 {"devices": [1], "time": 1, "memory": 1, "after": [0]},
                 {"devices": [1], "time": 2, "memory": -1, "after": [1]},
                 {"devices": [0], "time": 2, "memory": -1, "after": [2]}]})");
  EXPECT_EQ(answer.find("period")->as_integer(), 6);
  EXPECT_TRUE(answer.find("proven")->as_bool());
}

// A long block beside short ones: no search of a period comes to an end, and there are many. The
// answer is neither proven nor much longer than the load.
TEST(PlannersTest, TesselGivesUpWhatItCannotProve) {
  const Json answer = solve("tessel", R"({"schema": "orrery-problem", "version": 1,
      "devices": 5, "in_flight": 1, "memory": 5,
      "blocks": [{"devices": [1], "time": 1},
                 {"devices": [2, 3], "time": 5, "memory": 2, "after": [0]},
                 {"devices": [2, 3], "time": 1, "memory": -2, "after": [0, 1]},
                 {"devices": [3], "time": 3},
                 {"devices": [3], "time": 3, "memory": 5},
                 {"devices": [1], "time": 100, "memory": 1, "after": [3, 4]},
                 {"devices": [3], "time": 5, "memory": -5, "after": [0]},
                 {"devices": [3], "time": 2, "after": [2, 5]},
                 {"devices": [0, 4], "time": 4, "memory": 1, "after": [0]},
                 {"devices": [0, 4], "time": 1, "memory": -1, "after": [1]},
                 {"devices": [3], "time": 2, "after": [9]},
                 {"devices": [1], "time": 1, "memory": -1}]})");
  EXPECT_EQ(answer.find("load_bound")->as_integer(), 102);
  EXPECT_LE(answer.find("period")->as_integer(), 120);
  EXPECT_FALSE(answer.find("proven")->as_bool());
}

// Without latency and with twice the activations of 1F1B no stage idles inside its span
// (strategies 4.17: cap 2p reaches zero), with p of them p - 1 units remain (ZB-H1).
TEST(PlannersTest, CrossPipeExactOrders) {
  const auto idle = [](int stages, int micro_batches, int memory) {
    return number(
        solve("crosspipe", fmt::format(R"({{"schema": "orrery-problem", "version": 1, "stages": {},
                                        "micro_batches": {}, "memory": {}}})",
                                       stages, micro_batches, memory)),
        "idle");
  };
  EXPECT_EQ(idle(2, 4, 4), 0);
  EXPECT_EQ(idle(2, 4, 2), 1);
  EXPECT_GE(idle(2, 4, 1), idle(2, 4, 2));
}

TEST(PlannersTest, BaPipeBalancesByDeviceSpeed) {
  const Json answer = solve("bapipe", R"({"schema": "orrery-problem", "version": 1,
      "layers": [{"forward": "1 ms", "backward": "2 ms", "count": 9}],
      "devices": [{"speed": 2}, {"speed": 1}], "bandwidth": "1 GB/s", "micro_batches": 8})");
  EXPECT_EQ(answer.find("stages")->as_array().front().find("last")->as_integer(), 6);
  EXPECT_DOUBLE_EQ(number(answer, "bottleneck_s"), 0.009);
}

// Four equal layers on four devices, 15 ms each, 8 micro-batches.
Json bapipe_of(const std::string& device, const std::string& bandwidth) {
  return solve("bapipe", fmt::format(R"({{"schema": "orrery-problem", "version": 1,
      "layers": [{{"forward": "5 ms", "backward": "10 ms", "output": "45 MB",
                  "parameters": "0 B", "activations": "1 GB", "count": 4}}],
      "devices": [{{"count": 4{}}}], "bandwidth": "{}", "micro_batches": 8}})",
                                     device, bandwidth));
}

// Without transfers all executors take (M + N - 1) slots; the first stage keeps N micro-batches,
// 2 N - 1 with the doubled warm-up and 2 N where forwards and backwards run at once.
TEST(PlannersTest, BaPipeComparesExecutors) {
  const std::vector<std::pair<std::string, double>> needed = {
      {"1f1b-as", 4}, {"1f1b-sno", 4}, {"1f1b-so", 7}, {"fbp-as", 8}};
  for (const int gigabytes : {4, 6, 7, 8}) {
    const Json answer = bapipe_of(
        fmt::format(R"(, "concurrent": true, "memory": "{} GB")", gigabytes), "1000000 TB/s");
    for (const auto& [name, least] : needed) {
      const Json* time = answer.find("executors_s")->find(name);
      ASSERT_EQ(time != nullptr, gigabytes >= least) << name << " " << gigabytes;
      EXPECT_NEAR(time == nullptr ? 0.165 : time->as_number(), 0.165, 1e-9) << name;
    }
  }
  EXPECT_EQ(bapipe_of("", "1 GB/s").find("executors_s")->find("fbp-as"), nullptr);
}

// A slot of 90 ms moves both directions one after the other, one of 45 ms each in a slot of its
// own.
TEST(PlannersTest, BaPipeHalvesTheTrafficWhereBothRunAtOnce) {
  EXPECT_NEAR(number(bapipe_of("", "1 GB/s"), "bottleneck_s"), 0.090, 1e-9);
  const Json answer = bapipe_of(R"(, "concurrent": true)", "1 GB/s");
  EXPECT_EQ(answer.find("executor")->as_string(), "fbp-as");
  EXPECT_NEAR(number(answer, "bottleneck_s"), 0.045, 1e-9);
}

// All the memory in the world: the compute-balanced cut, nothing swapped.
TEST(PlannersTest, DawnPiperBalancesComputeWhenMemoryIsPlenty) {
  const Json answer = solve("dawnpiper", R"({"schema": "orrery-problem", "version": 1,
      "layers": [{"forward": "1 ms", "backward": "2 ms", "activations": "1 MB", "count": 8}],
      "devices": 4, "memory": "80 GB", "host_bandwidth": "12 GB/s"})");
  EXPECT_DOUBLE_EQ(number(answer, "bottleneck_s"), 0.006);
  for (const Json& stage : answer.find("stages")->as_array()) {
    EXPECT_EQ(number(stage, "swapped_bytes") + number(stage, "recomputed_bytes"), 0);
  }
}

// Four chunks of 1 ms and two layers on two stages. The first stage holds two chunks: 40 kB of
// which 30 kB fit, so of any two neighbours one recomputes a layer (10 kB), which two chunks do.
TEST(PlannersTest, InfiniPipeRecomputesNoMoreThanTheWindowsNeed) {
  const Json answer = solve("infinipipe", R"({"schema": "orrery-problem", "version": 1,
      "sequences": [1000, 1000, 1000, 1000], "chunk_tokens": 1000, "stages": 2,
      "layers_per_stage": 2, "per_token": "1 us", "per_token_pair": "0 s",
      "activations_per_token": "10 B", "input_per_token": "0 B", "memory": "30 kB"})");
  const Json& group = answer.find("groups")->as_array().front();
  EXPECT_EQ(group.find("chunk_tokens")->as_array().size(), 4U);
  std::vector<std::int64_t> layers;
  for (const Json& stage : group.find("recomputed_layers_by_stage")->as_array()) {
    layers.push_back(0);
    for (const Json& count : stage.as_array()) {
      layers.back() += count.as_integer();
    }
  }
  EXPECT_EQ(layers, (std::vector<std::int64_t>{2, 0}));
}

// More chunks than the search for whole layers gets through: what it answers is the same every
// time, and every stage still fits.
TEST(PlannersTest, InfiniPipeAnswersBeyondItsProof) {
  std::string sequences;
  for (int i = 0; i < 120; ++i) {
    sequences += fmt::format("{}{}", i == 0 ? "" : ",", 600 + 37 * i % 391);
  }
  const std::string problem = fmt::format(R"({{"schema": "orrery-problem", "version": 1,
      "sequences": [{}], "chunk_tokens": 1000, "stages": 2, "layers_per_stage": 7,
      "per_token": "1 us", "per_token_pair": "0.1 ns", "activations_per_token": "10 B",
      "input_per_token": "1 B", "memory": "50 kB"}})",
                                          sequences);
  const Json answer = solve("infinipipe", problem);
  EXPECT_EQ(answer.dump(), solve("infinipipe", problem).dump());
  const Json& group = answer.find("groups")->as_array().front();
  EXPECT_FALSE(group.find("proven")->as_bool());
  const Json::Array& tokens = group.find("chunk_tokens")->as_array();
  const Json::Array& stages = group.find("recomputed_layers_by_stage")->as_array();
  for (std::size_t stage = 0; stage < 2; ++stage) {
    const Json::Array& layers = stages[stage].as_array();
    ASSERT_EQ(layers.size(), tokens.size());
    for (std::size_t i = 0; i < layers.size(); ++i) {
      double held = 0;
      for (std::size_t j = i; j < std::min(layers.size(), i + 2 - stage); ++j) {
        const auto count = static_cast<double>(layers[j].as_integer());
        held += tokens[j].as_number() * (10 * (7 - count) + count);
      }
      EXPECT_LE(held, 50'000 * (1 + 1e-9)) << stage << ' ' << i;
    }
  }
}

// What runs of headlines read from the answers.
TEST(PlannersTest, AnswersSayWhatRunsNeed) {
  const std::string chain = R"("layers": [{"forward": "1 ms", "backward": "2 ms", "output": "6 MB",
      "parameters": "4 MB", "state_activations_bytes": 1e6, "count": 4}])";
  const Json cut =
      solve("pipedream", R"({"schema": "orrery-problem", "version": 1, )" + chain +
                             R"(, "levels": [{"workers": 2, "bandwidth": "4 GB/s"}]})");
  // (12 ms + 4 x 16 MB / (2 x 4 MB/ms)) / 2
  EXPECT_NEAR(number(cut, "data_parallel_s"), 0.010, 1e-12);
  const std::string nodes = R"(, "nodes": [{"gpus": 1, "memory": "8 GB"},
      {"gpus": 1, "speed": 0.5, "memory": "8 GB"}], "bandwidth_inside": "12 GB/s",
      "bandwidth_between": "6 GB/s")";
  const Json worker = solve("hetpipe", R"({"schema": "orrery-problem", "version": 1, "policy": "ed",
      "batch_scale": 2, )" + chain + nodes +
                                           "}");
  EXPECT_EQ(worker.find("policy")->as_string(), "ed");
  const Json& first = worker.find("workers")->as_array().front();
  // Twice the batch: layers of 6 ms, three on the fast GPU, one of 12 ms on the other.
  double longest = 0;
  double all = 0;
  for (const Json& time : first.find("stage_times_s")->as_array()) {
    longest = std::max(longest, time.as_number());
    all += time.as_number();
  }
  EXPECT_NEAR(longest, 0.018, 1e-12);
  EXPECT_NEAR(all, 0.030, 1e-12);
  EXPECT_NEAR(first.find("send_s")->as_array().front().as_number(), 0.002, 1e-12);
  const Json pieces = solve("infinipipe", R"({"schema": "orrery-problem", "version": 1,
      "sequences": [250, 60, 60], "chunk_tokens": 100, "stages": 2, "layers_per_stage": 2,
      "per_token": "1 ms", "per_token_pair": "0 s", "activations_per_token": "8 B",
      "input_per_token": "1 B", "memory": "1 MB"})");
  const Json& group = pieces.find("groups")->as_array().front();
  EXPECT_EQ(group.find("count")->as_integer(), 3);
  EXPECT_EQ(*group.find("slices_of"), parse_json("[3, 1, 1]", "expected"));
  double work = 0;
  for (const Json& time : group.find("chunk_time_s")->as_array()) {
    work += time.as_number();
  }
  EXPECT_NEAR(work, 370 * 2e-3, 1e-9);
}

}  // namespace
}  // namespace orrery::search
