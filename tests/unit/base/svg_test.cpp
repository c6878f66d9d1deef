// SPDX-License-Identifier: Apache-2.0
#include "base/svg.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/axis.hpp"

namespace orrery {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(Svg, TextIsHarmlessInsideMarkup) {
  EXPECT_EQ(xml_text("a<b> & \"c\""), "a&lt;b&gt; &amp; &quot;c&quot;");
}

TEST(Svg, LinesBreakAtSpacesAndKeepEveryWord) {
  EXPECT_THAT(text_lines("one two three", 1000, 10), ElementsAre("one two three"));
  EXPECT_THAT(text_lines("one two three", 45, 10), ElementsAre("one two", "three"));
  EXPECT_THAT(text_lines("incompressible x", 10, 10), ElementsAre("incompressible", "x"));
}

TEST(Svg, WidthCountsCharactersNotBytes) {
  EXPECT_DOUBLE_EQ(text_width("\xc3\xa9", 12), text_width("e", 12));
}

TEST(Axis, LinearTicksAreRoundAndNoMoreThanAsked) {
  EXPECT_THAT(linear_ticks(0, 33, 5), ElementsAre(0, 10, 20, 30));
  EXPECT_THAT(linear_ticks(0, 1, 6), ElementsAre(0, 0.2, 0.4, testing::DoubleEq(0.6), 0.8, 1));
  EXPECT_THAT(linear_ticks(3, 3, 6), ElementsAre(3));
}

TEST(Axis, LogarithmicTicksFollowTheLengthOfTheAxis) {
  EXPECT_THAT(logarithmic_ticks(79.5, 82.2, 0.2), ElementsAre(80, 81, 82));
  EXPECT_THAT(logarithmic_ticks(0.9, 30, 0.15), ElementsAre(1, 2, 5, 10, 20));
  EXPECT_THAT(logarithmic_ticks(1, 1e6, 0.09), ElementsAre(1, 10, 100, 1e3, 1e4, 1e5, 1e6));
  EXPECT_LE(logarithmic_ticks(1e-300, 1e300, 0.1).size(), 11U);
}

TEST(Axis, OddLimitsGiveNoTicks) {
  EXPECT_THAT(linear_ticks(1, 0, 5), IsEmpty());
  EXPECT_THAT(linear_ticks(0, HUGE_VAL, 5), IsEmpty());
  EXPECT_THAT(linear_ticks(-1.7e308, 1.7e308, 5), IsEmpty());
  EXPECT_THAT(logarithmic_ticks(0, 1, 0.1), IsEmpty());
}

}  // namespace
}  // namespace orrery
