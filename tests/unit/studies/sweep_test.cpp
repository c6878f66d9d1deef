// SPDX-License-Identifier: Apache-2.0
// Sweeps: designs, results that do not depend on threads or on where a run was ended, pictures.
#include "studies/sweeps/sweep.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <string>

#include "base/csv.hpp"
#include "base/error.hpp"
#include "base/files.hpp"
#include "tests/unit/studies/pictures.hpp"

namespace orrery::studies {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

std::string document(const std::string& axes, const std::string& more = "") {
  return R"({"schema": "orrery-sweep", "version": 1, "network": "llama3-8b",
             "cluster": "hgx-h100:1", "batch": 16, "fix": ["pp=1", "cp=1", "recompute=full"])" +
         more + R"(, "axes": [)" + axes + "]}";
}

Sweep sweep_of(const std::string& text) { return read_sweep(parse_json(text, "s.json"), "s.json"); }

std::string error_of(const std::string& text) {
  try {
    (void)sweep_of(text);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::vector<SweepPoint> run(const Sweep& sweep, int jobs) {
  std::vector<SweepPoint> points(sweep.points.size());
  run_sweep(sweep, points, jobs);
  return points;
}

constexpr const char* kBatches = R"({"field": "batch", "values": [16, 32, 64]})";

// Searches that follow each other on a thread keep the costs that they have in common: points come
// out as they do alone. Memory, its reserve and batch leave costs as they are; rates do not.
TEST(SweepTest, KeptCostsChangeNoPoint) {
  const std::string axes = R"({"field": "gpu.memory", "values": ["30 GB", "50 GB", "80 GB"]},
                              {"field": "batch", "values": [16, 48]},
                              {"field": "memory_reserve", "values": ["1 GB", "6 GB"]},
                              {"field": "gpu.hbm_bandwidth", "values": ["2 TB/s", "3 TB/s"]})";
  const Sweep sweep = sweep_of(document(axes));
  const std::vector<SweepPoint> together = run(sweep, 1);
  ASSERT_EQ(together.size(), 24U);
  std::set<std::string> layouts;
  for (std::size_t i = 0; i < together.size(); ++i) {
    Sweep alone = sweep;
    alone.points = {sweep.points[i]};
    const std::vector<SweepPoint> point = run(alone, 1);
    Sweep same = sweep;
    same.points = {sweep.points[i]};
    EXPECT_EQ(sweep_csv(same, {together[i]}), sweep_csv(alone, point)) << i;
    layouts.insert(together[i].layout);
  }
  EXPECT_GT(layouts.size(), 2U);
}

TEST(SweepTest, AGridIsEveryCombinationInOrder) {
  const Sweep sweep = sweep_of(document(R"({"field": "batch", "values": [16, 32]},
                           {"field": "gpu.memory", "from": "40 GB", "to": "80 GB", "count": 3})"));
  EXPECT_THAT(sweep.fields, ElementsAre("batch", "gpu.memory"));
  ASSERT_EQ(sweep.points.size(), 6U);
  EXPECT_THAT(sweep.points[1], ElementsAre("16", "60 GB"));
  EXPECT_THAT(sweep.points[5], ElementsAre("32", "80 GB"));
}

TEST(SweepTest, RangesMayBeLogarithmicAndWhole) {
  const Sweep sweep =
      sweep_of(document(R"({"field": "batch", "from": 8, "to": 128, "count": 5, "scale": "log"})"));
  std::vector<std::string> values;
  for (const auto& point : sweep.points) {
    values.push_back(point[0]);
  }
  EXPECT_THAT(values, ElementsAre("8", "16", "32", "64", "128"));
}

TEST(SweepTest, RandomDesignsRepeat) {
  const std::string axes = R"({"field": "gpu.memory", "from": "60 GB", "to": "90 GB"})";
  const std::string seven = document(axes, R"(, "random": {"points": 7, "seed": 3})");
  EXPECT_EQ(sweep_of(seven).points, sweep_of(seven).points);
  EXPECT_EQ(sweep_of(seven).points.size(), 7U);
  EXPECT_NE(sweep_of(seven).points,
            sweep_of(document(axes, R"(, "random": {"points": 7, "seed": 4})")).points);
}

TEST(SweepTest, BadDesignsAreNamed) {
  EXPECT_THAT(error_of(document("")), HasSubstr("no fields to sweep"));
  EXPECT_THAT(error_of(document(R"({"field": "batch", "values": []})")), HasSubstr("no values"));
  EXPECT_THAT(error_of(document(R"({"field": "batch", "value": [8]})")),
              HasSubstr("/axes/0: expected \"values\", or \"from\" and \"to\""));
  EXPECT_THAT(error_of(document(R"({"field": "x", "from": 1, "to": 2})", R"(, "rando": {})")),
              HasSubstr("did you mean \"random\"?"));
  EXPECT_THAT(error_of(document(R"({"field": "x", "from": "1 GB", "to": "2 MB", "count": 2})")),
              HasSubstr("unit"));
  EXPECT_THAT(error_of(document(R"({"field": "x", "from": 0, "to": 2, "count": 2,
                                    "scale": "log"})")),
              HasSubstr("positive"));
  EXPECT_THAT(error_of(document(R"({"field": "x", "from": 0, "to": 2, "count": 2})",
                                R"(, "random": {"points": 7})")),
              HasSubstr("/axes/0/count: a random design draws from the whole axis"));
  EXPECT_THAT(error_of(document(std::string(kBatches) + "," + kBatches)), HasSubstr("twice"));
  EXPECT_THAT(error_of(R"({"schema": "orrery-sweep", "version": 1, "network": "llama3-8b",
                           "batch": 8, "axes": [{"field": "sequence", "values": [1024]}]})"),
              HasSubstr("no \"cluster\""));
}

TEST(SweepTest, PointsAreSearchedAndFailuresKept) {
  const Sweep sweep =
      sweep_of(document(R"({"field": "gpu.memory", "values": ["80 GB", "1 GB", "many"]})"));
  const std::vector<SweepPoint> points = run(sweep, 1);
  EXPECT_EQ(points[0].state, PointState::Found);
  EXPECT_GT(points[0].tokens_per_s, 0);
  EXPECT_EQ(points[0].gpus, 8);
  EXPECT_EQ(points[0].gap, 0);
  EXPECT_EQ(points[1].state, PointState::Infeasible);
  EXPECT_EQ(points[2].state, PointState::Failed);
  EXPECT_THAT(points[2].message, HasSubstr("many"));
}

TEST(SweepTest, ThreadsAndAnEarlyEndChangeNothing) {
  const Sweep sweep = sweep_of(document(kBatches));
  const std::vector<SweepPoint> whole = run(sweep, 1);
  const std::string expected = sweep_json(sweep, whole).dump();
  EXPECT_EQ(sweep_json(sweep, run(sweep, 2)).dump(), expected);
  // Ended after the first point, stored, read back and continued.
  std::vector<SweepPoint> early(whole.size());
  early[0] = whole[0];
  const Json stored = parse_json(sweep_json(sweep, early).dump(), "r.json");
  std::vector<SweepPoint> resumed = read_sweep_points(stored, sweep, "r.json");
  EXPECT_EQ(resumed[1].state, PointState::Pending);
  run_sweep(sweep, resumed, 1);
  EXPECT_EQ(sweep_json(sweep, resumed).dump(), expected);
}

TEST(SweepTest, ResultsOfAnotherSweepAreRefused) {
  const Sweep sweep = sweep_of(document(kBatches));
  const Sweep other = sweep_of(document(R"({"field": "batch", "values": [16, 32, 128]})"));
  const std::vector<SweepPoint> nothing(3);
  EXPECT_THROW((void)read_sweep_points(sweep_json(other, nothing), sweep, "r.json"), Error);
  Json old = sweep_json(sweep, nothing);
  old.set("orrery", "0.0.0");
  EXPECT_THROW((void)read_sweep_points(old, sweep, "r.json"), Error);
}

// A network that is missing, then there, then another one: only its points are searched again.
TEST(SweepTest, PointsOfFilesThatChangedAreSearchedAgain) {
  const auto network = [](const std::string& name) { return testing::TempDir() + name; };
  const auto write = [&](const std::string& name, int layers) {
    write_file_atomically(network(name), fmt::format(R"({{"schema": "orrery-network", "version": 1,
        "name": "swept", "family": "llama", "layers": {}, "hidden": 1024, "heads": 8,
        "kv_heads": 4, "ffn_hidden": 2816, "vocab": 32000, "sequence": 2048}})",
                                                     layers));
  };
  write("kept.json", 6);
  std::filesystem::remove(network("late.json"));
  const Sweep sweep = sweep_of(fmt::format(
      R"({{"schema": "orrery-sweep", "version": 1, "cluster": "hgx-h100:1", "batch": 8,
           "axes": [{{"field": "network", "values": ["{}", "{}"]}}]}})",
      network("kept.json"), network("late.json")));
  std::vector<SweepPoint> points = run(sweep, 1);
  const auto again = [&] {
    points = read_sweep_points(parse_json(sweep_json(sweep, points).dump(), "r.json"), sweep, "r");
    points[0].plans = 7;  // stays where it is not searched again
    run_sweep(sweep, points, 1);
  };
  EXPECT_EQ(points[1].state, PointState::Failed);
  again();
  EXPECT_EQ(points[1].state, PointState::Failed);
  write("late.json", 6);
  again();
  ASSERT_EQ(points[1].state, PointState::Found);
  EXPECT_EQ(points[0].plans, 7);
  const double before = points[1].iteration_time_s;
  write("late.json", 12);
  again();
  EXPECT_GT(points[1].iteration_time_s, before);
  EXPECT_EQ(points[0].plans, 7);
}

TEST(SweepTest, PointsThatDifferByPriceAreSearchedOnce) {
  const Sweep sweep =
      sweep_of(document(R"({"field": "gpu.price", "values": ["2 USD/h", "3 USD/h"]})"));
  int calls = 0;
  std::vector<SweepPoint> points(2);
  run_sweep(sweep, points, 1, [&](std::size_t) { ++calls; });
  EXPECT_EQ(calls, 1);
  EXPECT_DOUBLE_EQ(points[0].usd_per_hour, 16);
  EXPECT_DOUBLE_EQ(points[1].usd_per_hour, 24);
  EXPECT_EQ(points[0].iteration_time_s, points[1].iteration_time_s);
}

TEST(SweepTest, TheFrontierHasWhatNothingBeats) {
  std::vector<SweepPoint> points(4);
  const double rates[] = {10, 8, 20, 15};
  const std::int64_t gpus[] = {8, 8, 16, 32};
  for (std::size_t i = 0; i < 4; ++i) {
    points[i].state = PointState::Found;
    points[i].tokens_per_s = rates[i];
    points[i].gpus = gpus[i];
  }
  EXPECT_THAT(frontier(points), ElementsAre(0U, 2U));
}

TEST(SweepTest, TablesAndPicturesHoldEveryPoint) {
  const Sweep sweep = sweep_of(document(R"({"field": "batch", "values": [16, 32]},
                                           {"field": "nodes", "values": [1, 2]})",
                                        R"(, "name": "a < b")"));
  const std::vector<SweepPoint> points = run(sweep, 0);
  const CsvTable table = parse_csv(sweep_csv(sweep, points), "r.csv");
  ASSERT_EQ(table.num_rows(), 4U);
  EXPECT_EQ(table.cell(3, "nodes"), "2");
  EXPECT_EQ(table.cell(3, "gpus"), "16");
  EXPECT_EQ(table.cell(0, "layout"), points[0].layout);
  const std::string svg = sweep_svg(sweep, points);
  EXPECT_THAT(svg, HasSubstr("a &lt; b"));
  EXPECT_THAT(svg, HasSubstr("frontier"));
  EXPECT_EQ(svg, sweep_svg(sweep, points));
}

// A colour of a map means the layout that the legend says only where both look alike.
TEST(SweepTest, CellsWithoutAPlanSayWhy) {
  const Sweep sweep = sweep_of(document(R"({"field": "gpu.memory", "values": ["1 GB", "80 GB"]},
                     {"field": "precision", "values": ["bf16", "bf61"]})"));
  std::vector<SweepPoint> points = run(sweep, 0);
  points.back() = {};  // an interrupted run did not come to it
  const std::string svg = sweep_svg(sweep, points);
  for (const char* label : {">none fits<", ">failed<", ">not searched<"}) {
    EXPECT_THAT(svg, HasSubstr(label));
  }
}

TEST(SweepTest, LegendOfAMapHasTheColoursOfItsCells) {
  const Sweep sweep = sweep_of(document(R"({"field": "batch", "values": [16, 32]},
                                           {"field": "nodes", "values": [1, 2]})"));
  const std::string svg = sweep_svg(sweep, run(sweep, 0));
  const std::regex rect(R"re(<rect [^>]*fill="(#[0-9a-f]{6})"( fill-opacity="[0-9.]+")?)re");
  std::map<std::string, std::set<std::string>> looks;
  std::map<std::string, int> uses;
  for (std::sregex_iterator at(svg.begin(), svg.end(), rect); at != std::sregex_iterator(); ++at) {
    looks[(*at)[1]].insert((*at)[2]);
    ++uses[(*at)[1]];
  }
  int in_both = 0;
  for (const auto& [colour, found] : looks) {
    EXPECT_EQ(found.size(), 1U) << colour;
    in_both += uses[colour] > 1 ? 1 : 0;
  }
  EXPECT_GE(in_both, 1);
}

// Results without a search: every point found with a strategy of the given name, `rate` tokens/s.
SweepPoint found_point(const std::string& strategy, double rate) {
  SweepPoint point;
  point.state = PointState::Found;
  point.layout = strategy + ", dp 8";
  point.tokens_per_s = rate;
  point.gpus = 8;
  return point;
}

constexpr const char* kTwoFields = R"({"field": "batch", "values": [16, 32]},
                                      {"field": "nodes", "values": [1, 2]})";

TEST(SweepTest, AThirdFieldHasAPanelForEachValue) {
  const Sweep sweep = sweep_of(document(
      std::string(kTwoFields) + R"(, {"field": "sequence", "values": [1024, 2048, 4096]})"));
  std::vector<SweepPoint> points;
  for (std::size_t i = 0; i < sweep.points.size(); ++i) {
    points.push_back(found_point("tp 1", 1000 + static_cast<double>(i)));
  }
  const std::string svg = sweep_svg(sweep, points);
  for (const char* title : {">sequence 1024<", ">sequence 2048<", ">sequence 4096<"}) {
    EXPECT_THAT(svg, HasSubstr(title));
  }
  EXPECT_EQ(count_in(svg, "<title>"), 12U);  // a cell for every point
  EXPECT_THAT(svg, Not(HasSubstr("fastest over")));
  EXPECT_THAT(svg, HasSubstr(">llama3-8b on hgx-h100<"));
}

TEST(SweepTest, HeadingsSayWhatIsShared) {
  const Sweep sweep = sweep_of(R"({"schema": "orrery-sweep", "version": 1, "cluster": "hgx-h100:1",
      "batch": 8, "axes": [{"field": "network", "values": ["gpt2"]}]})");
  EXPECT_THAT(sweep_svg(sweep, {found_point("tp 1", 1000)}), HasSubstr(">hgx-h100:1, batch 8<"));
  const Sweep nodes = sweep_of(R"({"schema": "orrery-sweep", "version": 1, "network": "gpt2",
      "cluster": "hgx-h100:1", "batch": 8, "axes": [{"field": "nodes", "values": [1, 2]}]})");
  EXPECT_THAT(sweep_svg(nodes, {found_point("tp 1", 1000), found_point("tp 1", 2000)}),
              HasSubstr(">gpt2 on hgx-h100, batch 8<"));
}

TEST(SweepTest, FieldsThatSharePanelsAreNamedAndLosersHaveNoColour) {
  const Sweep sweep = sweep_of(document(std::string(kTwoFields) +
                                        R"(, {"field": "sequence", "values": [1024]},
                                             {"field": "precision", "values": ["bf16", "fp16"]})"));
  std::vector<SweepPoint> points;
  for (const std::vector<std::string>& values : sweep.points) {
    points.push_back(values[3] == "bf16" ? found_point("fast", 2000) : found_point("slow", 1000));
  }
  const std::string svg = sweep_svg(sweep, points);
  EXPECT_THAT(svg, HasSubstr("fastest over precision"));
  EXPECT_THAT(svg, HasSubstr(">fast<"));
  EXPECT_THAT(svg, Not(HasSubstr(">slow<")));
  points.back().gpus = 16;  // throughput against cost shows all of them
  EXPECT_THAT(sweep_svg(sweep, points), HasSubstr(">slow<"));
}

std::vector<double> circles(const std::string& svg, const std::string& coordinate) {
  const std::regex circle("<circle [^>]*" + coordinate + "=\"([0-9.]+)\"");
  std::vector<double> numbers;
  for (std::sregex_iterator at(svg.begin(), svg.end(), circle); at != std::sregex_iterator();
       ++at) {
    numbers.push_back(std::stod((*at)[1]));
  }
  return numbers;
}

TEST(SweepTest, RangesOfARandomDesignAreAxesOfNumbers) {
  Sweep sweep = sweep_of(document(R"({"field": "gpu.memory", "from": "10 GB", "to": "90 GB"},
      {"field": "gpu.hbm_bandwidth", "from": "1 TB/s", "to": "8 TB/s", "scale": "log"})",
                                  R"(, "random": {"points": 4, "seed": 3})"));
  sweep.points = {
      {"10 GB", "1 TB/s"}, {"20 GB", "4 TB/s"}, {"90 GB", "2 TB/s"}, {"20 GB", "1 TB/s"}};
  std::vector<SweepPoint> points(4, found_point("tp 1", 1000));
  points.back() = {};
  points.back().state = PointState::Infeasible;
  const std::string svg = sweep_svg(sweep, points);
  const std::vector<double> x = circles(svg, "cx");
  const std::vector<double> y = circles(svg, "cy");
  ASSERT_EQ(x.size(), 4U);  // with the one where nothing fits
  EXPECT_NEAR((x[1] - x[0]) / (x[2] - x[0]), 0.125, 0.01);
  EXPECT_NEAR((y[2] - y[0]) / (y[1] - y[0]), 0.5, 0.01);
  EXPECT_EQ(count_in(svg, ">1 k</text>"), 3U);
  EXPECT_THAT(svg, HasSubstr(">60 GB</text>"));
}

TEST(SweepTest, ARandomRangeIsAnAxisOfNumbers) {
  Sweep sweep = sweep_of(document(R"({"field": "gpu.memory", "from": "10 GB", "to": "90 GB"})",
                                  R"(, "random": {"points": 3, "seed": 3})"));
  sweep.points = {{"90 GB"}, {"10 GB"}, {"20 GB"}};
  const std::vector<SweepPoint> points(3, found_point("tp 1", 1000));
  const std::vector<double> x = circles(sweep_svg(sweep, points), "cx");
  ASSERT_EQ(x.size(), 3U);  // by size
  EXPECT_NEAR((x[1] - x[0]) / (x[2] - x[0]), 0.125, 0.01);
}

TEST(SweepTest, FailuresSpeakOfMembersOfTheDocument) {
  const Sweep sweep = sweep_of(R"({"schema": "orrery-sweep", "version": 1, "network": "gpt2",
      "cluster": "hgx-h100:1", "batch": 8, "axes": [{"field": "sequence", "values": [9000]}]})");
  const std::vector<SweepPoint> points = run(sweep, 1);
  EXPECT_THAT(points[0].message, testing::StartsWith("sequence: "));
  EXPECT_THAT(points[0].message, Not(HasSubstr("--")));
  EXPECT_THAT(
      error_of(document(kBatches, R"(, "set": ["layers"])")),
      testing::AllOf(HasSubstr("s.json: /set/0: \"layers\" has no value"), Not(HasSubstr("--"))));
}

TEST(SweepTest, RepeatedRandomValuesShareAColumnOfThePicture) {
  const Sweep sweep = sweep_of(document(R"({"field": "batch", "values": [16, 32]})",
                                        R"(, "random": {"points": 12, "seed": 1})"));
  const std::string svg = sweep_svg(sweep, run(sweep, 0));
  std::size_t dots = 0;
  for (std::size_t at = svg.find("<circle"); at != svg.npos; at = svg.find("<circle", at + 1)) {
    ++dots;
  }
  EXPECT_EQ(dots, 2U);
}

}  // namespace
}  // namespace orrery::studies
