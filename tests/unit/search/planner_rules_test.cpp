// SPDX-License-Identifier: Apache-2.0
// Answers at the edge of what a problem may say: nothing to do, whole quotients, parts without an
// answer.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "tests/unit/base/testing.hpp"
#include "tests/unit/search/planner_answers.hpp"

namespace orrery::search {
namespace {

std::string refusal_of(std::string_view name, const std::string& text) {
  return testing::message_of([&] { solve(name, text); });
}

TEST(PlannerRules, OperationsOfNothingAreNamed) {
  const auto of = [](const char* operations) {
    return refusal_of(
        "nanoflow",
        fmt::format(
            R"({{"schema": "orrery-problem", "version": 1, "tokens": 2048, "operations": [{}]}})",
            operations));
  };
  EXPECT_EQ(of(R"({"name": "a", "class": "compute", "time": "0 ms"})"),
            "problem: /operations: no operation takes time");
  EXPECT_EQ(of(R"({"name": "a", "class": "compute", "time": "1 ms"},
                  {"name": "a", "class": "memory", "time": "1 ms"})"),
            "problem: /operations/1/name: another operation has that name");
}

// Quotients of decimals that are whole, or that a bound names, are what they say.
TEST(PlannerRules, RoundQuotientsAreTakenAsTheyAre) {
  const auto servers = [](int workers, const char* parameters, const char* compute) {
    return number(solve("parameter-server",
                        fmt::format(R"({{"schema": "orrery-problem", "version": 1, "workers": {},
      "parameters": "{}", "server_bandwidth": "1 GB/s", "worker_bandwidth": "100 GB/s",
      "compute": "{}"}})",
                                    workers, parameters, compute)),
                  "formula_servers");
  };
  EXPECT_EQ(servers(6, "350 MB", "0.7 s"), 6);
  EXPECT_EQ(servers(7, "150 MB", "0.3 s"), 7);
  EXPECT_EQ(servers(7, "151 MB", "0.3 s"), 8);
  const Json efficient = solve("dip", R"({"schema": "orrery-problem", "version": 1,
      "modules": [{"name": "a", "instances": 8, "times": ["17 ms", "32.3 ms"]}]})");
  EXPECT_EQ(number(efficient.find("modules")->as_array().front(), "micro_batch"), 1);
}

TEST(PlannerRules, APartWithoutAnAnswerLeavesTheProblemWithoutOne) {
  const Json answer = solve("dip", R"({"schema": "orrery-problem", "version": 1,
      "modules": [{"name": "a", "instances": 8, "times": ["17 ms"]}], "memory": "1 GB",
      "pairs": [{"start": 0, "end": 2, "variants": [{"time": "0 ms", "memory": "2 GB"}]}]})");
  ASSERT_NE(answer.find("feasible"), nullptr);
  EXPECT_FALSE(answer.find("feasible")->as_bool());
  EXPECT_EQ(answer.find("reason")->as_string(), "no choice of variants fits the memory");
  EXPECT_NE(answer.find("modules"), nullptr);
}

// Longest slices within a gap of each other count as one, but a gap of 10 us between neighbours
// does not chain all of them together: with 48 stages that would be the whole sequence, 9 times as
// long.
TEST(PlannerRules, TeraPipeSkipsLongestSlicesWithinAGapOnly) {
  const auto answer = [](std::string_view gap) {
    return solve("terapipe", fmt::format(R"({{"schema": "orrery-problem", "version": 1,
        "stages": 48, "sequence": 2048, "quantum": 8, "floor": "0.5 ms", "per_token": "3 us",
        "per_pair": "0.0011 us", "gap": "{}"}})",
                                         gap));
  };
  const double least = number(answer("0 s"), "time_s");
  EXPECT_LT(least, 0.033);
  EXPECT_LE(number(answer("10 us"), "time_s"), least + 47 * 10e-6);
  // All as one: without slices.
  const Json one = answer("1 s");
  EXPECT_LE(number(one, "time_s"), number(one, "time_without_slices_s"));
}

TEST(PlannerRules, TeraPipeRefusesWhatTakesMinutes) {
  const auto problem = [](int batch) {
    return fmt::format(R"({{"schema": "orrery-problem", "version": 1, "stages": 8,
        "sequence": 1024, "quantum": 2, "per_token": "1 us", "batch": {}}})",
                       batch);
  };
  EXPECT_NO_THROW(solve("terapipe", problem(1)));
  const std::string refusal = refusal_of("terapipe", problem(33));
  EXPECT_NE(refusal.find("512 quanta in micro-batches of up to 33 sequences are too many"),
            std::string::npos)
      << refusal;
}

// Attention alone, of a token to half of its own and all before it: slices together form the pairs
// of the whole sequence. A stage of three layers adds two transfers of a slice, 1 ms and 1 us a
// token each, and the updates of its layers.
TEST(PlannerRules, TeraPipeCountsPairsTransfersAndUpdates) {
  const auto answer = [](int quantum, std::string_view more) {
    return solve("terapipe", fmt::format(R"({{"schema": "orrery-problem", "version": 1, "stages": 1,
        "sequence": 512, "quantum": {}, "per_token": "0 s", "per_pair": "1 us", "gap": "0 s"{}}})",
                                         quantum, more));
  };
  const double pairs = 512 * 512 / 2 * 1e-6;
  EXPECT_NEAR(number(answer(512, ""), "time_s"), pairs, 1e-9);
  EXPECT_NEAR(number(answer(8, ""), "time_s"), pairs, 1e-9);
  EXPECT_NEAR(number(answer(8, ""), "time_without_slices_s"), pairs, 1e-9);
  const Json whole =
      answer(512, R"(, "layers": 3, "send": "1 ms", "send_per_token": "1 us", "update": "2 ms")");
  EXPECT_NEAR(number(whole, "time_s"), 3 * pairs + 2 * (1e-3 + 512e-6) + 3 * 2e-3, 1e-9);
}

}  // namespace
}  // namespace orrery::search
