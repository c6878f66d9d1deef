// SPDX-License-Identifier: Apache-2.0
#include "studies/pareto_picture.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "plan/document/plan_text.hpp"
#include "tests/unit/search/small_search.hpp"
#include "tests/unit/studies/pictures.hpp"

namespace orrery::studies {
namespace {

search::ParetoFrontier frontier_of_memory() {
  search::Options options;
  options.jobs = 1;
  options.constraints.choose_schedule("1f1b");
  return search::find_pareto(search::ParetoKind::Memory, {}, search::base_plan(), options);
}

TEST(ParetoPictureTest, EveryPlanIsDrawnAndListed) {
  const search::ParetoFrontier frontier = frontier_of_memory();
  ASSERT_GT(frontier.points.size(), 2U);
  const std::string svg = pareto_svg(frontier);
  std::size_t circles = 0;
  for (std::size_t at = svg.find("<circle"); at != std::string::npos;
       at = svg.find("<circle", at + 1)) {
    ++circles;
  }
  EXPECT_EQ(circles, frontier.points.size());
  EXPECT_NE(svg.find(plan::layout_text(frontier.points.back().found.plan)), std::string::npos);
  EXPECT_NE(svg.find("proven"), std::string::npos);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
}

// Plans that differ by some bytes: no two labels of the axis are alike.
TEST(ParetoPictureTest, LabelsOfTheAxisDiffer) {
  search::ParetoFrontier frontier = frontier_of_memory();
  frontier.points.erase(frontier.points.begin() + 2, frontier.points.end());
  frontier.points.front().memory = ByteCount((std::int64_t{1} << 31) + 3'000'000);
  frontier.points.back().memory = ByteCount(std::int64_t{1} << 31);
  const std::string svg = pareto_svg(frontier);
  std::set<std::string> labels;
  const std::string end = " GiB</text>";
  for (std::size_t at = svg.find(end); at != std::string::npos; at = svg.find(end, at + 1)) {
    const std::size_t begin = svg.rfind('>', at);
    EXPECT_TRUE(labels.insert(svg.substr(begin, at - begin)).second);
  }
  EXPECT_FALSE(labels.empty());
}

// Plans that differ by a thousandth of their time, too.
TEST(ParetoPictureTest, LabelsOfTimesDiffer) {
  search::ParetoFrontier frontier = frontier_of_memory();
  frontier.points.erase(frontier.points.begin() + 2, frontier.points.end());
  frontier.points.front().found.simulation.iteration_time = Seconds(35.78);
  frontier.points.back().found.simulation.iteration_time = Seconds(35.82);
  const std::string svg = pareto_svg(frontier);
  std::set<std::string> labels;
  const std::string tick = "text-anchor=\"end\" font-size=\"10\">";
  for (std::size_t at = svg.find(tick); at != std::string::npos; at = svg.find(tick, at + 1)) {
    const std::size_t begin = at + tick.size();
    EXPECT_TRUE(labels.insert(svg.substr(begin, svg.find('<', begin) - begin)).second);
  }
  EXPECT_GE(labels.size(), 5U);
  EXPECT_TRUE(labels.contains("35.79 s"));
}

TEST(ParetoPictureTest, TimesOfMinutesHaveRoundLabels) {
  search::ParetoFrontier frontier = frontier_of_memory();
  frontier.points.erase(frontier.points.begin() + 2, frontier.points.end());
  frontier.points.front().found.simulation.iteration_time = Seconds(290);
  frontier.points.back().found.simulation.iteration_time = Seconds(3700);
  const std::string svg = pareto_svg(frontier);
  EXPECT_NE(svg.find(">40 min<"), std::string::npos);
  EXPECT_EQ(svg.find(">33.3 min<"), std::string::npos);
}

// Once beside its dot, once in the list; a line leads to those that have no room at their dot.
TEST(ParetoPictureTest, EveryCrowdedDotHasItsNumber) {
  search::ParetoFrontier frontier = frontier_of_memory();
  const search::ParetoPoint point = frontier.points.front();
  frontier.points.assign(30, point);
  for (int i = 0; i < 30; ++i) {
    const bool far = i == 29;
    search::ParetoPoint& one = frontier.points[static_cast<std::size_t>(i)];
    one.memory = ByteCount(far ? 1'000'000'000 : 2'000'000'000 - i * 1'000'000);
    one.found.simulation.iteration_time = Seconds(far ? 2 : 1 + 1e-4 * i);
  }
  const std::string svg = pareto_svg(frontier);
  for (int i = 1; i <= 30; ++i) {
    EXPECT_EQ(count_in(svg, ">" + std::to_string(i) + "</text>"), 2U) << i;
  }
  EXPECT_GE(count_in(svg, "stroke=\"#666\""), 10U);
}

TEST(ParetoPictureTest, TheTitleSaysWhatTheTableSays) {
  const search::ParetoFrontier frontier = frontier_of_memory();
  const std::string svg = pareto_svg(frontier);
  const std::string precision(to_text(frontier.points.front().found.plan.precision));
  EXPECT_NE(svg.find(">small on dgx-a100:1 (4 x a100-sxm4-80gb)<"), std::string::npos);
  EXPECT_NE(svg.find(">batch 8, sequence 2048, " + precision + "; the fastest"), std::string::npos);
}

// Of few points, too, whose numbers have room on all sides but one.
TEST(ParetoPictureTest, NumbersKeepOffTheFrame) {
  search::ParetoFrontier frontier = frontier_of_memory();
  frontier.points.erase(frontier.points.begin() + 2, frontier.points.end());
  for (int i = 0; i < 2; ++i) {
    search::ParetoPoint& point = frontier.points[static_cast<std::size_t>(i)];
    point.memory = ByteCount(4'000'000'000 - 2'000'000'000LL * i);
    point.found.simulation.iteration_time = Seconds(1 + 2 * i);
  }
  const std::string svg = pareto_svg(frontier);
  const std::size_t frame = svg.find("<rect x=\"90\"");
  ASSERT_NE(frame, std::string::npos);
  const auto number_after = [&](const std::string& name, std::size_t from) {
    return std::stod(svg.substr(svg.find(name, from) + name.size()));
  };
  const double bottom = number_after("y=\"", frame) + number_after("height=\"", frame);
  const std::size_t dots = svg.rfind("<circle");
  for (const char* number : {">1<", ">2<"}) {
    const std::size_t label = svg.rfind("<text", svg.find(number, dots));
    EXPECT_LT(number_after(" y=\"", label), bottom - 2) << number;
  }
}

TEST(ParetoPictureTest, NoPointsStillMakeADocument) {
  EXPECT_NE(pareto_svg({}).find("</svg>"), std::string::npos);
}

}  // namespace
}  // namespace orrery::studies
