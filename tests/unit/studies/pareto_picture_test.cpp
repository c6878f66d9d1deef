// SPDX-License-Identifier: Apache-2.0
#include "studies/pareto_picture.hpp"

#include <gtest/gtest.h>

#include "plan/document/plan_text.hpp"
#include "tests/unit/search/small_search.hpp"

namespace orrery::studies {
namespace {

TEST(ParetoPictureTest, EveryPlanIsDrawnAndListed) {
  search::Options options;
  options.jobs = 1;
  options.constraints.choose_schedule("1f1b");
  const search::ParetoFrontier frontier =
      search::find_pareto(search::ParetoKind::Memory, {}, search::base_plan(), options);
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

TEST(ParetoPictureTest, NoPointsStillMakeADocument) {
  EXPECT_NE(pareto_svg({}).find("</svg>"), std::string::npos);
}

}  // namespace
}  // namespace orrery::studies
