// SPDX-License-Identifier: Apache-2.0
#include "base/svg.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/axis.hpp"
#include "base/quantity_text.hpp"

namespace orrery {
namespace {

using testing::DoubleNear;
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

// Short axes with one digit of a decade or two, or with all of them at one end.
TEST(Axis, LogarithmicTicksOfShortAxesAreNotFew) {
  EXPECT_THAT(logarithmic_ticks(0.7, 1.42, 0.09),
              ElementsAre(DoubleNear(0.7, 1e-9), DoubleNear(0.8, 1e-9), DoubleNear(0.9, 1e-9), 1,
                          DoubleNear(1.1, 1e-9), DoubleNear(1.2, 1e-9), DoubleNear(1.3, 1e-9),
                          DoubleNear(1.4, 1e-9)));
  EXPECT_THAT(logarithmic_ticks(11, 29, 0.15), ElementsAre(15, 20, 25));
  for (const double ratio : {2.01, 2.5, 3.0, 4.0, 5.0, 7.0, 9.0}) {
    for (double low = 1; low < 10; low += 0.37) {
      const std::vector<double> ticks = logarithmic_ticks(low, ratio * low, 0.08);
      EXPECT_GE(ticks.size(), 3U) << low << " to " << ratio * low;
      for (std::size_t i = 1; i < ticks.size(); ++i) {
        EXPECT_GE(std::log(ticks[i] / ticks[i - 1]), 0.08 * std::log(ratio));
      }
    }
  }
}

std::string count_label(double value, int more) { return format_count(value, more); }

TEST(Axis, LabelsHaveTheFewestDigitsThatTellThemApart) {
  EXPECT_THAT(tick_labels({1000, 2000, 5000}, count_label), ElementsAre("1 k", "2 k", "5 k"));
  EXPECT_THAT(tick_labels({384'950, 385'000, 385'050}, count_label),
              ElementsAre("384.95 k", "385 k", "385.05 k"));
  EXPECT_THAT(tick_labels({999'980, 999'990, 1'000'000}, count_label),
              ElementsAre("999.98 k", "999.99 k", "1 M"));
  // Apart, but rounded by half of what they are apart.
  EXPECT_THAT(tick_labels({100.5, 101}, count_label), ElementsAre("100.5", "101"));
  EXPECT_THAT(tick_labels({7, 7}, count_label), ElementsAre("7", "7"));
  EXPECT_THAT(tick_labels({}, count_label), IsEmpty());
}

TEST(Axis, OddLimitsGiveNoTicks) {
  EXPECT_THAT(linear_ticks(1, 0, 5), IsEmpty());
  EXPECT_THAT(linear_ticks(0, HUGE_VAL, 5), IsEmpty());
  EXPECT_THAT(linear_ticks(-1.7e308, 1.7e308, 5), IsEmpty());
  EXPECT_THAT(logarithmic_ticks(0, 1, 0.1), IsEmpty());
}

}  // namespace
}  // namespace orrery
