// SPDX-License-Identifier: Apache-2.0
#include "studies/validation/scatter.hpp"

#include <gmock/gmock.h>

#include <map>
#include <set>

#include "studies/validation/scatter_axis.hpp"
#include "tests/unit/studies/pictures.hpp"

namespace orrery::studies {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

RowResult row(const std::string& id, double predicted, double measured) {
  RowResult result;
  result.id = id;
  result.config_id = id;
  result.source = "table";
  result.quantity = "iteration_time_s";
  result.subject = "gpt, <8> GPUs & \"more\"";
  result.kind = "1f1b";
  result.predicted = predicted;
  result.measured = measured;
  return result;
}

TEST(LogAxisTest, PlacesDecadesEvenly) {
  const LogAxis axis(1, 100);
  EXPECT_NEAR(axis.place(10), 0.5, 1e-12);
  EXPECT_EQ(axis.place(0), 0.0);
  EXPECT_EQ(axis.place(1e9), 1.0);
  std::vector<std::string> labels;
  for (const Tick& tick : axis.ticks(false)) {
    labels.push_back(tick.label);
  }
  EXPECT_THAT(labels, ::testing::IsSupersetOf({"1 s", "10 s", "100 s"}));
}

TEST(LogAxisTest, LabelsDoNotCollide) {
  for (const double high : {1.0, 1.5, 4.0, 30.0, 1e3, 1e6, 1e9}) {
    const LogAxis axis(1, high);
    const std::vector<Tick> ticks = axis.ticks(false);
    EXPECT_FALSE(ticks.empty()) << high;
    for (std::size_t i = 1; i < ticks.size(); ++i) {
      EXPECT_GT(axis.place(ticks[i].value) - axis.place(ticks[i - 1].value), 0.05) << high;
    }
  }
}

TEST(ScatterTest, HoldsADotForEachRowWithItsText) {
  RowResult skipped = row("c", 1, 1);
  skipped.skipped_because = "why";
  RowResult memory = row("m", 4e9, 5e9);
  memory.memory = true;
  const auto pictures = scatters(summarise({row("a", 1, 1.2), row("b", 2, 2), skipped, memory}));
  ASSERT_EQ(pictures.size(), 2U);
  EXPECT_EQ(pictures[0].name, "table-time");
  EXPECT_EQ(pictures[1].name, "table-memory");
  const std::string& svg = pictures[0].svg;
  EXPECT_EQ(count_in(svg, "<title>"), 2U);
  EXPECT_THAT(svg, HasSubstr("a: predicted 1 s, measured 1.2 s, -16.7 %"));
  EXPECT_THAT(svg, HasSubstr("&lt;8&gt; GPUs &amp; &quot;more&quot;"));
  EXPECT_THAT(svg, Not(HasSubstr("<8>")));
  EXPECT_THAT(svg, HasSubstr("2 rows, median error 8.3 %"));
}

TEST(ScatterTest, ManyKindsShareALastColour) {
  std::vector<RowResult> rows;
  for (int i = 0; i < 30; ++i) {
    rows.push_back(row(std::to_string(i), 1 + i, 1 + i));
    rows.back().kind = "kind " + std::to_string(i);
  }
  EXPECT_THAT(scatters(summarise(rows)).front().svg, HasSubstr("21 others"));
}

std::string legend_colour(const std::string& svg, const std::string& kind) {
  const std::size_t label = svg.find(">" + kind + "<");
  const std::size_t circle = svg.rfind("fill=\"#", label == std::string::npos ? 0 : label);
  return circle == std::string::npos ? "" : svg.substr(circle, 14);
}

TEST(ScatterTest, AKindHasOneColourOnThePage) {
  std::vector<RowResult> rows;
  for (int i = 0; i < 9; ++i) {
    rows.push_back(row(std::to_string(i), 1 + i, 1 + i));
    rows.back().memory = i % 3 == 2;
    rows.back().kind = i % 3 == 1 || i == 8 ? "gpipe" : "1f1b";
    rows.back().source = i < 5 ? "table" : "other";
    rows.back().gpu = i % 3 == 1 || i == 8 ? "a100" : "h100";
    rows.back().plan = "tp 1";
  }
  std::map<std::string, std::set<std::string>> seen;
  for (const Scatter& picture : scatters(summarise(rows))) {
    for (const char* kind : {"gpipe", "1f1b", "a100", "h100"}) {
      if (picture.svg.find(std::string(">") + kind + "<") != std::string::npos) {
        seen[kind].insert(legend_colour(picture.svg, kind));
      }
    }
  }
  for (const auto& [kind, colours] : seen) {
    EXPECT_EQ(colours.size(), 1U) << kind;
  }
  EXPECT_NE(seen["gpipe"], seen["1f1b"]);
  EXPECT_NE(seen["a100"], seen["h100"]);
}

// Three configurations of one source weigh as much as the one of the other; partial rows are apart.
TEST(ScatterTest, CaptionsHaveTheFiguresOfTheTables) {
  std::vector<RowResult> rows = {row("a", 1.1, 1), row("b", 1.1, 1), row("c", 1.2, 1),
                                 row("d", 1.4, 1), row("e", 3, 1)};
  for (RowResult& one : rows) {
    one.plan = "tp 1";
  }
  rows[3].source = "other";
  rows[4].full = false;
  const Validation validation = summarise(rows);
  EXPECT_NEAR(*validation.overall.time.median, 0.3, 1e-12);
  const std::vector<Scatter> pictures = scatters(validation);
  EXPECT_THAT(pictures.front().svg,
              HasSubstr(">4 rows, median error 30.0 %, 90th percentile 40.0 %<"));
  EXPECT_THAT(pictures.front().svg,
              HasSubstr(">partial: 1 row, median error 200.0 %, 90th percentile 200.0 %<"));
  EXPECT_EQ(count_in(pictures[1].svg, "median error"), 1U);  // of the other source
}

// The worst row comes first and last in the table: neither place decides.
TEST(ScatterTest, TheLargestErrorsHaveHoverTexts) {
  std::vector<RowResult> rows;
  for (int i = 0; i < 1600; ++i) {
    rows.push_back(row(std::to_string(i), 1 + 1e-3 * (i % 800), 1));
  }
  const std::string svg = scatters(summarise(rows)).front().svg;
  EXPECT_EQ(count_in(svg, "<circle cx"), 1600U + 1U);  // and the legend's
  EXPECT_EQ(count_in(svg, "<title>"), 1500U);
  EXPECT_THAT(svg, AllOf(HasSubstr("<title>799: "), HasSubstr("<title>1599: "),
                         HasSubstr("<title>50: "), Not(HasSubstr("<title>49: "))));
  EXPECT_THAT(svg, HasSubstr("the 1500 rows with the largest errors"));
  rows.resize(1500);
  EXPECT_THAT(scatters(summarise(rows)).front().svg, Not(HasSubstr("largest errors")));
}

TEST(ScatterTest, ThePageHoldsEveryPictureAndNeedsNothingElse) {
  RowResult other = row("x", 3, 3);
  other.source = "other";
  other.plan = "tp 1";
  const std::string page = scatter_page(summarise({row("a", 1, 1.2), other}));
  EXPECT_EQ(count_in(page, "<svg"), 3U);  // both, and all training runs
  EXPECT_EQ(count_in(page, "http"), 3U);  // the name spaces
  EXPECT_THAT(page, Not(HasSubstr("<script")));
  EXPECT_EQ(scatters(summarise({})).size(), 0U);
  EXPECT_THAT(scatter_page(summarise({})), HasSubstr("No row could be simulated"));
}

}  // namespace
}  // namespace orrery::studies
