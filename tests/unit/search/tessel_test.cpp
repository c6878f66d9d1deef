// SPDX-License-Identifier: Apache-2.0
// Tessel's shortest bodies where the memory or the order of the list is in the way.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/error.hpp"
#include "tests/unit/search/planner_answers.hpp"

namespace orrery::search {
namespace {

// The block that keeps memory waits for nothing: with room for one it has to start late, shortly
// before the other branch is done (0, 3, 5 and 6 are such starts).
TEST(TesselPlanner, AMemoryBlockMayStartLate) {
  const std::string blocks[] = {
      R"({"devices": [0], "time": 3}, {"devices": [2], "time": 3, "after": [0]},
         {"devices": [1], "time": 1, "memory": 1},
         {"devices": [1], "time": 1, "memory": -1, "after": [1, 2]})",
      // The same, but the block that has to start late comes first in the list.
      R"({"devices": [1], "time": 1, "memory": 1}, {"devices": [0], "time": 3},
         {"devices": [2], "time": 3, "after": [1]},
         {"devices": [1], "time": 1, "memory": -1, "after": [0, 2]})"};
  for (const std::string& listed : blocks) {
    const Json answer = solve("tessel", R"({"schema": "orrery-problem", "version": 1, "devices": 3,
        "in_flight": 8, "memory": 1, "blocks": [)" +
                                            listed + "]}");
    EXPECT_EQ(answer.find("period")->as_integer(), 3);
    EXPECT_TRUE(answer.find("proven")->as_bool());
  }
}

// Listed F F B B, with room for one: F B F B takes as long as all blocks.
TEST(TesselPlanner, OneAfterTheOtherInAnyOrder) {
  const Json answer = solve("tessel", R"({"schema": "orrery-problem", "version": 1, "devices": 1,
      "in_flight": 4, "memory": 1, "blocks": [{"devices": [0], "time": 1, "memory": 1},
      {"devices": [0], "time": 1, "memory": 1},
      {"devices": [0], "time": 1, "memory": -1, "after": [0]},
      {"devices": [0], "time": 1, "memory": -1, "after": [1]}]})");
  EXPECT_EQ(answer.find("period")->as_integer(), 4);
  EXPECT_TRUE(answer.find("proven")->as_bool());
}

// Both blocks that keep memory come before those that free it.
TEST(TesselPlanner, SaysWhenNoOrderFits) {
  const Json answer = solve("tessel", R"({"schema": "orrery-problem", "version": 1, "devices": 1,
      "in_flight": 4, "memory": 1, "blocks": [{"devices": [0], "time": 1, "memory": 1},
      {"devices": [0], "time": 1, "memory": 1, "after": [0]},
      {"devices": [0], "time": 1, "memory": -2, "after": [1]}]})");
  EXPECT_FALSE(answer.find("feasible")->as_bool());
}

TEST(TesselPlanner, DevicesAreListedOnce) {
  const auto message = [](const std::string& devices) -> std::string {
    try {
      solve("tessel", R"({"schema": "orrery-problem", "version": 1, "devices": 2, "blocks": [
          {"devices": )" + devices +
                          R"(, "time": 1}]})");
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(message("[0, 0]"), testing::HasSubstr("list each device once"));
  EXPECT_THAT(message("[]"), testing::HasSubstr("at least one device"));
}

}  // namespace
}  // namespace orrery::search
