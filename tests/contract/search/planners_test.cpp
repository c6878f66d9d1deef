// SPDX-License-Identifier: Apache-2.0
// What every registered planner promises.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "base/error.hpp"
#include "base/text.hpp"
#include "search/planner.hpp"

namespace orrery::search {
namespace {

class Planners : public testing::TestWithParam<const Planner*> {};

TEST_P(Planners, IsDescribed) {
  const Planner& planner = *GetParam();
  EXPECT_TRUE(is_kebab_case(planner.name));
  EXPECT_FALSE(planner.description.empty());
  EXPECT_NE(planner.source.find("20"), std::string_view::npos) << "a year";
}

TEST_P(Planners, SolvesItsExampleTheSameWayTwice) {
  const Planner& planner = *GetParam();
  const Json example = parse_json(planner.example, "example");
  const Json answer = run_planner(planner, example, "example");
  EXPECT_EQ(answer.find("feasible"), nullptr) << answer.dump();
  EXPECT_EQ(answer.dump(), run_planner(planner, example, "example").dump());
}

TEST_P(Planners, NamesAnUnknownKey) {
  const Planner& planner = *GetParam();
  Json example = parse_json(planner.example, "example");
  example.set("no_such_key", 1);
  try {
    run_planner(planner, example, "example");
    FAIL() << "accepted an unknown key";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("no_such_key"), std::string::npos) << error.what();
  }
}

// A planner may take minutes. This one would end in an error of its own: too many passes.
TEST(PlannersOfLongProblems, NameAnUnknownKeyBeforeTheySolve) {
  const Planner& planner = find_planner("dynapipe", "test");
  Json problem = parse_json(planner.example, "example");
  problem.set("samples", Json(Json::Array(2000, Json(Json::Array{Json(8000)}))));
  problem.set("stages", 4096);
  problem.set("no_such_key", 1);
  try {
    run_planner(planner, problem, "problem");
    FAIL() << "accepted an unknown key";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("no_such_key"), std::string::npos) << error.what();
  }
}

// Every member of the example that is left out either has a default or is asked for by name.
TEST_P(Planners, AsksForWhatIsMissing) {
  const Planner& planner = *GetParam();
  const Json example = parse_json(planner.example, "example");
  for (const auto& [key, value] : example.as_object()) {
    Json without = Json::object();
    for (const auto& [other, kept] : example.as_object()) {
      if (other != key) {
        without.set(other, kept);
      }
    }
    try {
      run_planner(planner, without, "example");
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::BadInput);
      EXPECT_NE(std::string(error.what()).find("example"), std::string::npos) << error.what();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Planners, testing::ValuesIn(planner_table()),
                         [](const auto& planner) {
                           std::string name(planner.param->name);
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace orrery::search
