// SPDX-License-Identifier: Apache-2.0
// What a sweep's document may say about its axes and the time of a point.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "studies/sweeps/sweep.hpp"
#include "tests/unit/base/testing.hpp"

namespace orrery::studies {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Sweep sweep_of_axes(const std::string& axes, const std::string& more = "") {
  const std::string text = R"({"schema": "orrery-sweep", "version": 1, "network": "llama3-8b",
                               "cluster": "hgx-h100:1", "batch": 16)" +
                           more + R"(, "axes": [)" + axes + "]}";
  return read_sweep(parse_json(text, "s.json"), "s.json");
}

std::string error_of_axes(const std::string& axes, const std::string& more = "") {
  const auto error = testing::error_of([&] { (void)sweep_of_axes(axes, more); });
  return error ? error->what() : "";
}

constexpr const char* kTwoBatches = R"({"field": "batch", "values": [16, 32]})";

TEST(SweepAxesTest, AnAxisHasEveryValueOnce) {
  EXPECT_THAT(error_of_axes(R"({"field": "batch", "values": [16, 32, "16"]})"),
              HasSubstr("/axes/0/values/2: the value \"16\" stands twice"));
  EXPECT_THAT(error_of_axes(R"({"field": "layers", "from": 1, "to": 4, "count": 5})"),
              HasSubstr("/axes/0/count: 5 values, but 4 once they are whole numbers "
                        "(\"values\": [1, 2, 3, 4])"));
  EXPECT_THAT(
      error_of_axes(R"({"field": "layers", "from": 1, "to": 64, "count": 50, "scale": "log"})"),
      HasSubstr("50 values, but 32 once they are whole numbers (fewer, or a list of \"values\")"));
  EXPECT_THAT(
      error_of_axes(R"({"field": "gpu.memory", "from": "80 GB", "to": "80 GB", "count": 2})"),
      HasSubstr("2 values, but 1 once they are rounded (\"values\": [\"80 GB\"])"));
  const Sweep falling = sweep_of_axes(R"({"field": "layers", "from": 4, "to": 1, "count": 4})");
  EXPECT_EQ(falling.points.size(), 4U);
}

// Whatever the axes are, such as a field of one of the kinds.
TEST(SweepAxesTest, TakesOneKindOfNodes) {
  const std::string text = R"({"schema": "orrery-sweep", "version": 1, "network": "llama3-8b",
      "cluster": "hgx-h100:1+dgx-a100:1", "batch": 16,
      "axes": [{"field": "dgx-a100.gpu.memory", "values": ["40 GB", "80 GB"]}]})";
  const auto error =
      testing::error_of([&] { (void)read_sweep(parse_json(text, "s.json"), "s.json"); });
  ASSERT_TRUE(error);
  EXPECT_THAT(std::string(error->what()),
              HasSubstr("\"hgx-h100:1+dgx-a100:1\" has several kinds of nodes, and sweeps take "
                        "one kind"));
}

TEST(SweepAxesTest, SetAndAxesShareNoField) {
  EXPECT_THAT(error_of_axes(R"({"field": "batch", "values": [16]},
                               {"field": "gpu.memory", "values": ["60 GB", "80 GB"]})",
                            R"(, "set": ["layers=4", " gpu.memory = 60 GB"])"),
              HasSubstr("s.json: /axes/1: \"set\" has a value for the field \"gpu.memory\", too"));
  // The network's own length and the one that is trained.
  EXPECT_EQ(
      error_of_axes(R"({"field": "sequence", "values": [512]})", R"(, "set": ["sequence=4096"])"),
      "");
}

TEST(SweepAxesTest, FieldsOfPlansBeginWithFix) {
  const auto error_of_field = [](const std::string& field, const std::string& values,
                                 const std::string& more = "") {
    return error_of_axes(R"({"field": ")" + field + R"(", "values": )" + values + "}", more);
  };
  EXPECT_EQ(error_of_field("fix.tp", "[1, 2, 4]"), "");
  EXPECT_EQ(error_of_field("fix.micro_batch", "[1, 2]", R"(, "fix": "tp=2", "forbid": "zero=3")"),
            "");
  for (const char* field : {"tp", "mbs"}) {
    EXPECT_EQ(
        error_of_field(field, "[1, 2]"),
        fmt::format("s.json: /axes/0: \"{0}\" is a field of plans (write \"fix.{0}\")", field));
  }
  EXPECT_EQ(error_of_field("batchs", "[8, 16]"),
            "s.json: /axes/0: unknown field \"batchs\" (did you mean \"batch\"?)");
  EXPECT_THAT(error_of_field("fix.tpp", "[1]"), HasSubstr("unknown field \"tpp\""));
  EXPECT_THAT(error_of_field("fix.zero", "[1, 4]"), HasSubstr("4 is out of range (0 to 3)"));
  EXPECT_THAT(error_of_field("fix.tp", R"(["1,pp=2"])"), HasSubstr("is not one value"));
  EXPECT_THAT(error_of_field("fix.tp", "[2, 4]", R"(, "fix": "tp=2")"),
              HasSubstr("tp is fixed to"));
  EXPECT_THAT(error_of_field("fix.zero", "[0, 1]", R"(, "forbid": "zero=1")"),
              HasSubstr("zero=1 is fixed and excluded"));
}

TEST(SweepAxesTest, ATimeLimitWithoutUnitMeansSeconds) {
  for (const char* limit : {"5", "\"5\""}) {
    EXPECT_THAT(error_of_axes(kTwoBatches, std::string(R"(, "time_limit": )") + limit),
                HasSubstr("s.json: /time_limit: \"5\" has no unit (write \"5 s\")"));
  }
  EXPECT_THAT(error_of_axes(kTwoBatches, R"(, "time_limit": [5])"),
              HasSubstr("expected a quantity"));
  EXPECT_EQ(sweep_of_axes(kTwoBatches, R"(, "time_limit": "2 min")").time_limit, Seconds(120));
}

TEST(SweepAxesTest, NoUnitIsSuggestedForATimeLimitOfZero) {
  for (const char* limit : {"0", "\"0\"", "0.0", "\"0 s\""}) {
    EXPECT_THAT(error_of_axes(kTwoBatches, std::string(R"(, "time_limit": )") + limit),
                HasSubstr("s.json: /time_limit: must be greater than zero"))
        << limit;
  }
}

std::vector<std::string> values_of_axis(const std::string& axis) {
  std::vector<std::string> values;
  for (const auto& point : sweep_of_axes(axis).points) {
    values.push_back(point[0]);
  }
  return values;
}

TEST(SweepAxesTest, TheEndsOfARangeAreAsStated) {
  EXPECT_THAT(values_of_axis(R"({"field": "gpu.memory", "from": "17179869184 B",
                                 "to": "34359738368 B", "count": 3})"),
              ElementsAre("17179869184 B", "25769803776 B", "34359738368 B"));
  EXPECT_THAT(values_of_axis(R"({"field": "gpu.memory", "from": "16.0 GiB", "to": "1e2 GiB",
                                 "count": 2})"),
              ElementsAre("16.0 GiB", "1e2 GiB"));
  EXPECT_THAT(error_of_axes(R"({"field": "gpu.memory", "from": "80 GB", "to": "80.0 GB",
                                "count": 2})"),
              HasSubstr("2 values, but 1"));
}

TEST(SweepAxesTest, BetweenTheEndsStandAsManyDigitsAsAreNeeded) {
  EXPECT_THAT(
      values_of_axis(R"({"field": "gpu.memory", "from": "40 GB", "to": "80 GB", "count": 4})"),
      ElementsAre("40 GB", "53.3333 GB", "66.6667 GB", "80 GB"));
  EXPECT_THAT(
      values_of_axis(R"({"field": "gpu.memory", "from": "80 GB", "to": "80.0001 GB", "count": 3})"),
      ElementsAre("80 GB", "80.00005 GB", "80.0001 GB"));
  // Without an exponent, however small.
  EXPECT_THAT(values_of_axis(R"({"field": "node.nvlink.latency", "from": "0.00001 s",
                                 "to": "0.00003 s", "count": 3})"),
              ElementsAre("0.00001 s", "0.00002 s", "0.00003 s"));
}

// Each point is the search that "fix" alone would make.
TEST(SweepAxesTest, FieldsOfPlansAreFixedToEveryValue) {
  const std::string fixed = R"(, "fix": ["pp=1", "cp=1", "recompute=full"])";
  const Sweep sweep = sweep_of_axes(R"({"field": "batch", "values": [16, 32]},
                                       {"field": "fix.tp", "values": [1, 2, 8]},
                                       {"field": "fix.zero", "values": [1, 3]})",
                                    fixed);
  std::vector<SweepPoint> points(sweep.points.size());
  run_sweep(sweep, points, 1);
  ASSERT_EQ(points.size(), 12U);
  for (std::size_t i = 0; i < points.size(); ++i) {
    Sweep alone =
        sweep_of_axes(R"({"field": "batch", "values": [)" + sweep.points[i][0] + "]}", fixed);
    alone.constraints.fix("tp=" + sweep.points[i][1] + ",zero=" + sweep.points[i][2]);
    std::vector<SweepPoint> expected(1);
    run_sweep(alone, expected, 1);
    EXPECT_EQ(points[i].state, expected[0].state);
    EXPECT_EQ(points[i].layout, expected[0].layout);
    EXPECT_EQ(points[i].iteration_time_s, expected[0].iteration_time_s);
    EXPECT_EQ(points[i].plans, expected[0].plans);
    if (points[i].state == PointState::Found) {
      EXPECT_THAT(points[i].layout, testing::StartsWith("tp " + sweep.points[i][1] + ","));
    }
  }
}

TEST(SweepAxesTest, AsynchronousSchedulesAreAllowedWhereOneIsFixed) {
  const std::string allow = R"(, "allow": ["asynchronous"])";
  EXPECT_THAT(error_of_axes(kTwoBatches, allow),
              HasSubstr("s.json: /allow: \"asynchronous\" has no effect: no asynchronous schedule "
                        "is fixed (fix one, for example \"fix\": \"schedule=pipedream-2bw\")"));
  EXPECT_THAT(error_of_axes(kTwoBatches, allow + R"(, "fix": "schedule=1f1b")"),
              HasSubstr("has no effect"));
  EXPECT_EQ(error_of_axes(kTwoBatches, allow + R"(, "fix": "schedule=pipedream-2bw")"), "");
}

}  // namespace
}  // namespace orrery::studies
