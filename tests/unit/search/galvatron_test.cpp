// SPDX-License-Identifier: Apache-2.0
// Galvatron's planner on the profiles of its artifact: samples per second, batch and, in the full
// space, the strategy of every layer.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "base/error.hpp"
#include "base/json.hpp"
#include "search/planner.hpp"
#include "search/problems/galvatron_cost.hpp"
#include "tests/folders.hpp"

namespace orrery::search {
namespace {

constexpr const char* kSpaces[] = {"dp", "tp", "pp", "sdp", "dp+tp", "dp+pp", "full"};

Json oracle() {
  return read_json_file((orrery::test_folder() / "data/galvatron/oracle.json").string());
}

Json galvatron_answer(const Json& document, const Json& row, std::string_view space) {
  Json problem = *document.find("networks")->find(row.find("network")->as_string());
  problem.set("memory_mib", *row.find("memory_mib"));
  problem.set("space", std::string(space));
  return run_planner(find_planner("galvatron", "test"), problem, "oracle");
}

bool feasible(const Json& answer) { return answer.find("feasible") == nullptr; }

double rate(const Json& answer) {
  return feasible(answer) ? answer.find("samples_per_s")->as_number() : 0;
}

std::string cell(const Json& answer) {
  return feasible(answer)
             ? fmt::format("{:.2f} ({})", rate(answer), answer.find("batch")->as_integer())
             : "none";
}

std::string plan_text(const Json& answer) {
  if (!feasible(answer)) {
    return "none";
  }
  std::string text;
  for (const Json& stage : answer.find("stages")->as_array()) {
    text += text.empty() ? "" : " / ";
    bool first = true;
    for (const Json& run : stage.find("runs")->as_array()) {
      text += fmt::format("{}{} x{}", first ? "" : ", ", run.find("strategy")->as_string(),
                          run.find("layers")->as_integer());
      first = false;
    }
  }
  return text;
}

// "34.2 (48)" as "34.20 (48)".
std::string two_decimals(const std::string& text) {
  const std::size_t space = text.find(' ');
  return space == std::string::npos
             ? text
             : fmt::format("{:.2f}{}", std::stod(text.substr(0, space)), text.substr(space));
}

TEST(GalvatronTest, EveryCellOfTheOracleTable) {
  const Json document = oracle();
  for (const Json& row : document.find("rows")->as_array()) {
    const std::string name = fmt::format("{} in {} MiB", row.find("network")->as_string(),
                                         row.find("memory_mib")->as_integer());
    double best_restricted = 0;
    for (const char* space : kSpaces) {
      const Json answer = galvatron_answer(document, row, space);
      EXPECT_EQ(cell(answer), two_decimals(row.find(space)->as_string())) << name << " " << space;
      if (std::string_view(space) == "full") {
        EXPECT_EQ(plan_text(answer), row.find("plan")->as_string()) << name;
        EXPECT_GE(rate(answer), best_restricted) << name;
      }
      best_restricted = std::max(best_restricted, rate(answer));
    }
  }
}

TEST(GalvatronTest, MoreMemoryIsNeverSlower) {
  const Json document = oracle();
  std::string network;
  double before = 0;
  for (const Json& row : document.find("rows")->as_array()) {
    if (row.find("network")->as_string() != network) {
      network = row.find("network")->as_string();
      before = 0;
    }
    const double now = rate(galvatron_answer(document, row, "full"));
    EXPECT_GE(now, before) << network;
    before = now;
  }
}

TEST(GalvatronTest, TheTreeOfEightDevicesHas22Leaves) {
  std::size_t leaves = 0;
  for (const int pp : {1, 2, 4, 8}) {
    leaves += galvatron::leaves(8, pp, galvatron::Space::Full).size();
  }
  EXPECT_EQ(leaves, 22U);
  EXPECT_EQ(galvatron::leaves(8, 1, galvatron::Space::Full).size(), 11U);
}

TEST(GalvatronTest, OverlapSlowsBothDown) {
  EXPECT_DOUBLE_EQ(galvatron::overlap(10, 6, 1.3), 11.8);
  EXPECT_DOUBLE_EQ(galvatron::overlap(10, 10, 2), 20);
  EXPECT_DOUBLE_EQ(galvatron::overlap(10, 6, 1), 10);
}

TEST(GalvatronTest, LayoutsThatDifferInShardingOnlyHandOverFree) {
  galvatron::Problem problem;
  problem.links[1]["2 strided"] = 0.3;
  const galvatron::Strategy plain{1, 2, 4, false, false};
  const galvatron::Strategy sharded{1, 2, 4, true, false};
  const galvatron::Strategy data{1, 1, 8, false, false};
  EXPECT_EQ(galvatron::switch_seconds(problem, plain, sharded, 8), 0);
  EXPECT_EQ(galvatron::switch_seconds(problem, sharded, plain, 8), 1e-4);  // tie-break
  // Half of 2 MiB a sample, 2 samples a device, at 0.3 ms/MiB.
  EXPECT_DOUBLE_EQ(galvatron::switch_seconds(problem, data, plain, 8), 2 * 8 / 4.0 / 2 * 0.3e-3);
  EXPECT_EQ(galvatron::switch_seconds(problem, plain, data, 8), 0);
}

TEST(GalvatronTest, AMissingLinkIsNamed) {
  Json problem = parse_json(find_planner("galvatron", "test").example, "example");
  problem.set("links", parse_json(R"({"1": {}})", "links"));
  try {
    run_planner(find_planner("galvatron", "test"), problem, "p.json");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("/links/1/2"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace orrery::search
