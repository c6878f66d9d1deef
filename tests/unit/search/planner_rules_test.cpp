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

}  // namespace
}  // namespace orrery::search
