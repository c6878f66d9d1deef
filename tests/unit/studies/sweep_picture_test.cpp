// SPDX-License-Identifier: Apache-2.0
// Labels and headings of the pictures of sweeps.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "studies/sweeps/sweep.hpp"
#include "studies/sweeps/value_labels.hpp"
#include "tests/unit/studies/pictures.hpp"

namespace orrery::studies {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// The picture of a sweep over fields with values, of points with rising throughput.
std::string drawn_sweep(const std::vector<std::pair<std::string, std::string>>& fields,
                        double rate = 1000, double more = 100) {
  std::vector<std::string> axes;
  for (const auto& [field, values] : fields) {
    axes.push_back(fmt::format(R"({{"field": "{}", "values": [{}]}})", field, values));
  }
  const Sweep sweep = read_sweep(
      parse_json(fmt::format(R"({{"schema": "orrery-sweep", "version": 1, "network": "llama3-8b",
                                  "cluster": "hgx-h100:1", "batch": 16, "axes": [{}]}})",
                             fmt::join(axes, ", ")),
                 "s.json"),
      "s.json");
  std::vector<SweepPoint> points(sweep.points.size());
  for (std::size_t i = 0; i < points.size(); ++i) {
    points[i].state = PointState::Found;
    points[i].layout = "tp 1, dp 8";
    points[i].gpus = 8;
    points[i].tokens_per_s = rate + more * static_cast<double>(i);
  }
  return sweep_svg(sweep, points);
}

// Labels of an axis, which alone have this size and end at it or lie below it.
std::vector<std::string> axis_labels(const std::string& svg, const std::string& anchor) {
  std::vector<std::string> labels;
  const std::string begin = "text-anchor=\"" + anchor + "\" font-size=\"10\"";
  for (std::size_t at = svg.find(begin); at != std::string::npos; at = svg.find(begin, at + 1)) {
    const std::size_t from = svg.find('>', at) + 1;
    labels.push_back(svg.substr(from, svg.find('<', from) - from));
  }
  return labels;
}

std::string quoted_values(const std::vector<std::string>& values) {
  return fmt::format("\"{}\"", fmt::join(values, "\", \""));
}

TEST(ValueLabelsTest, LongNumbersAreShortenedAndNamesAreNot) {
  EXPECT_THAT(short_labels({"132.082 GB", "80 GB", "1f1b-interleaved", ""}),
              ElementsAre("132 GB", "80 GB", "1f1b-interleaved", ""));
  EXPECT_THAT(short_labels({"524288", "1044480", "1048576"}),
              ElementsAre("524288", "1044480", "1048576"));
}

TEST(ValueLabelsTest, AllHaveTheDigitsThatTellThemApart) {
  EXPECT_THAT(short_labels({"3.351 TB/s", "3.3524 TB/s", "3.354 TB/s"}),
              ElementsAre("3.351 TB/s", "3.352 TB/s", "3.354 TB/s"));
}

TEST(ValueLabelsTest, LongNamesKeepTheirEnds) {
  const std::string middle(40, 'x');
  EXPECT_THAT(short_labels({"a-" + middle + "-1", "a-" + middle + "-2"}),
              ElementsAre("a-xxxxxxxxxxxxx...xxxxxxxxxxxx-1", "a-xxxxxxxxxxxxx...xxxxxxxxxxxx-2"));
  // Those that differ in the middle keep more of it.
  const std::vector<std::string> labels =
      short_labels({middle + "1" + middle, middle + "2" + middle});
  EXPECT_NE(labels[0], labels[1]);
  // Characters of several bytes are not broken.
  std::string umlauts;
  for (int i = 0; i < 40; ++i) {
    umlauts += "\xc3\xbc";
  }
  EXPECT_THAT(short_labels({umlauts}),
              ElementsAre(umlauts.substr(0, 14) + "..." + umlauts.substr(0, 14)));
}

TEST(ValueLabelsTest, SortsNumbersOfOneUnitOnly) {
  std::vector<std::string> memory = {"182 GB", "46.5 GB", "90 GB"};
  sort_by_number(memory);
  EXPECT_THAT(memory, ElementsAre("46.5 GB", "90 GB", "182 GB"));
  std::vector<std::string> mixed = {"2 TB", "46.5 GB"};
  sort_by_number(mixed);
  EXPECT_THAT(mixed, ElementsAre("2 TB", "46.5 GB"));
}

TEST(SweepPictureTest, NoTwoLabelsOfAnAxisAreAlike) {
  const std::string svg = drawn_sweep(
      {{"gpu.hbm_bandwidth", R"("3.351 TB/s", "3.352 TB/s", "3.354 TB/s")"}}, 385'000, 20);
  const std::vector<std::string> rates = axis_labels(svg, "end");
  EXPECT_GE(rates.size(), 3U);
  EXPECT_EQ(std::set<std::string>(rates.begin(), rates.end()).size(), rates.size());
  EXPECT_THAT(axis_labels(svg, "middle"), ElementsAre("3.351 TB/s", "3.352 TB/s", "3.354 TB/s"));
}

TEST(SweepPictureTest, EveryNameHasItsLabel) {
  std::vector<std::string> clusters;
  std::vector<std::string> networks;
  for (int i = 1; i <= 24; ++i) {
    clusters.push_back(fmt::format("hgx-h100-hbm2e:{}", i));
    networks.push_back(fmt::format("gpt3-like-{}m", i));
  }
  const std::string svg =
      drawn_sweep({{"network", quoted_values(networks)}, {"cluster", quoted_values(clusters)}});
  for (const std::string& name : clusters) {
    EXPECT_THAT(svg, HasSubstr(">" + name + "<"));
  }
  for (const std::string& name : networks) {
    EXPECT_THAT(svg, HasSubstr(">" + name + "<"));
  }
  EXPECT_EQ(count_in(svg, "rotate(-45 "), networks.size());  // too long to stand side by side
}

TEST(SweepPictureTest, TheMarginHasRoomForTheLongestName) {
  const auto left_of = [](const std::string& svg) {
    const std::string frame = "<rect x=\"";
    return std::stod(svg.substr(svg.find(frame) + frame.size()));
  };
  const std::pair batches("batch", "8, 16");
  EXPECT_EQ(left_of(drawn_sweep({batches, {"cluster", R"("a:1", "b:1")"}})), 90);
  EXPECT_GT(left_of(drawn_sweep({batches, {"cluster", R"("a:1", "frontera-rtx:4+dgx-a100:1")"}})),
            150);
}

TEST(SweepPictureTest, TheHeadingSpeaksOfNumbersWhereThereAreSome) {
  const std::pair batches("batch", "8, 16");
  EXPECT_THAT(drawn_sweep({{"layers", "1, 2, 3"}, batches}), HasSubstr("numbers: tokens/s"));
  std::vector<int> many;
  for (int i = 1; i <= 50; ++i) {
    many.push_back(i);
  }
  const std::string narrow =
      drawn_sweep({{"layers", fmt::format("{}", fmt::join(many, ", "))}, batches});
  EXPECT_THAT(narrow, Not(HasSubstr("numbers")));
  EXPECT_EQ(count_in(narrow, "<title>"), 100U);
  EXPECT_EQ(count_in(narrow, "<svg"), 1U);
}

}  // namespace
}  // namespace orrery::studies
