// SPDX-License-Identifier: Apache-2.0
// What a sweep's document may say about its axes and the time of a point.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "studies/sweeps/sweep.hpp"
#include "tests/unit/base/testing.hpp"

namespace orrery::studies {
namespace {

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

TEST(SweepAxesTest, ATimeLimitWithoutUnitMeansSeconds) {
  for (const char* limit : {"5", "\"5\""}) {
    EXPECT_THAT(error_of_axes(kTwoBatches, std::string(R"(, "time_limit": )") + limit),
                HasSubstr("s.json: /time_limit: \"5\" has no unit (write \"5 s\")"));
  }
  EXPECT_THAT(error_of_axes(kTwoBatches, R"(, "time_limit": [5])"),
              HasSubstr("expected a quantity"));
  EXPECT_EQ(sweep_of_axes(kTwoBatches, R"(, "time_limit": "2 min")").time_limit, Seconds(120));
}

}  // namespace
}  // namespace orrery::studies
