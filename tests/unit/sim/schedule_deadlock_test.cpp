// SPDX-License-Identifier: Apache-2.0
// Schedule documents that deadlock: what the message says to change ends it.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "sim/orders/schedule_document.hpp"

namespace orrery::sim {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kNoDeadlock = "no error";

std::string deadlock_of(const std::string& members, const ScheduleParams& params) {
  try {
    const Json document = parse_json(
        R"({"schema": "orrery-schedule", "version": 1, "name": "mine", )" + members + "}",
        "mine.json");
    (void)order_of(read_schedule_document(document, "mine.json"), params);
  } catch (const Error& error) {
    return error.what();
  }
  return kNoDeadlock;
}

// The least warm-up: with it the rule runs, with any smaller one above the written one it does not.
TEST(ScheduleDeadlocks, DeadlocksOfRulesNameTheLeastWarmUp) {
  for (const int p : {2, 3, 4}) {
    for (const int m : {4, 7, 8}) {
      for (const int v : {2, 3}) {
        const auto rule = [](std::int64_t forwards) {
          return fmt::format(R"("placement": "loop", "traversal": "depth", "warm_up": {})",
                             forwards);
        };
        const ScheduleParams params{p, m, v, 0};
        const std::string message = deadlock_of(rule(1), params);
        constexpr std::string_view kSet = "(set warm_up to ";
        const std::size_t at = message.find(kSet);
        ASSERT_NE(at, std::string::npos) << message;
        const std::int64_t least = std::stoll(message.substr(at + kSet.size()));
        EXPECT_EQ(deadlock_of(rule(least), params), kNoDeadlock);
        for (std::int64_t forwards = 2; forwards < least; ++forwards) {
          EXPECT_NE(deadlock_of(rule(forwards), params), kNoDeadlock) << forwards;
        }
      }
    }
  }
}

// The warm-up that is nearest to what is written, of all devices or of the one that has its own.
TEST(ScheduleDeadlocks, DeadlocksOfOverridesNameTheDevice) {
  const auto rule = [](int all, int own) {
    return fmt::format(R"("placement": "loop", "warm_up": {}, "overrides": [
        {{"device": 1, "warm_up": {}}}])",
                       all, own);
  };
  const ScheduleParams params{2, 6, 1, 0};
  EXPECT_THAT(deadlock_of(rule(1, 2), params), HasSubstr("(set warm_up to 2)"));
  EXPECT_EQ(deadlock_of(rule(2, 2), params), kNoDeadlock);
  EXPECT_THAT(deadlock_of(rule(3, 6), params),
              AllOf(HasSubstr("deadlock"), HasSubstr("(set warm_up")));
  EXPECT_EQ(deadlock_of(R"("placement": "loop", "warm_up": 2, "overrides": [
                {"device": 0, "warm_up": "all"}])",
                        params),
            kNoDeadlock);
}

// Where one is not enough all are named that have to change, no further than needed.
TEST(ScheduleDeadlocks, DeadlocksOfSeveralOverridesNameTheLeastOfEach) {
  const auto rule = [](int all, int own, int last) {
    return fmt::format(R"("placement": "loop", "traversal": "depth", "warm_up": {}, "overrides": [
        {{"device": 1, "warm_up": {}}}, {{"device": 3, "warm_up": {}}}])",
                       all, own, last);
  };
  const ScheduleParams params{4, 64, 2, 0};
  EXPECT_THAT(deadlock_of(rule(1, 1, 1), params),
              HasSubstr("(set warm_up of the override of device 3 to 5 and warm_up of the override "
                        "of device 1 to 5 and warm_up to 5)"));
  EXPECT_THAT(deadlock_of(rule(5, 2, 2), params),
              HasSubstr("(set warm_up of the override of device 3 to 5 and warm_up of the override "
                        "of device 1 to 5)"));
  EXPECT_EQ(deadlock_of(rule(5, 5, 5), params), kNoDeadlock);
}

// Passes of two devices that wait for each other: the move that is named lets the lists run.
TEST(ScheduleDeadlocks, DeadlocksOfListsNameTheMove) {
  const auto lists = [](const std::string& second) {
    return fmt::format(R"("passes": [
        [{{"pass": "F", "stage": 0, "micro_batch": 0}}, {{"pass": "BW", "stage": 0, "micro_batch": 0}},
         {{"pass": "F", "stage": 0, "micro_batch": 1}}, {{"pass": "BW", "stage": 0, "micro_batch": 1}}],
        [{{"pass": "F", "stage": 1, "micro_batch": 0}}, {}]])",
                       second);
  };
  const ScheduleParams params{2, 2, 1, 0};
  const std::string forward = R"({"pass": "F", "stage": 1, "micro_batch": 1}, )";
  const std::string backward = R"({"pass": "BW", "stage": 1, "micro_batch": 0}, )";
  const std::string last = R"({"pass": "BW", "stage": 1, "micro_batch": 1})";
  EXPECT_THAT(deadlock_of(lists(forward + backward + last), params),
              AllOf(HasSubstr("deadlock"), HasSubstr("(on device 1 list BW of stage 1, micro-batch "
                                                     "0 before F of stage 1, micro-batch 1)")));
  EXPECT_EQ(deadlock_of(lists(backward + forward + last), params), kNoDeadlock);
}

// No move alone lets any pass run.
TEST(ScheduleDeadlocks, ListsInReverseNameAllMoves) {
  const auto pass = [](const char* kind) {
    return fmt::format(R"({{"pass": "{}", "stage": 0, "micro_batch": 0}})", kind);
  };
  const auto lists = [](const std::string& a, const std::string& b, const std::string& c) {
    return fmt::format(R"("passes": [[{}, {}, {}]])", a, b, c);
  };
  EXPECT_THAT(deadlock_of(lists(pass("W"), pass("B"), pass("F")), {}),
              HasSubstr("(on device 0 list B of stage 0, micro-batch 0 before W of stage 0, "
                        "micro-batch 0; then on device 0 list F of stage 0, micro-batch 0 before B "
                        "of stage 0, micro-batch 0)"));
  EXPECT_EQ(deadlock_of(lists(pass("F"), pass("B"), pass("W")), {}), kNoDeadlock);
}

// A block whose second pass needs what its first one gives, from another device.
TEST(ScheduleDeadlocks, DeadlocksOfBlocksNameThePassThatIsJoined) {
  const auto lists = [](const char* joined) {
    return fmt::format(R"("passes": [
        [{{"pass": "F", "stage": 0, "micro_batch": 0{}}}, {{"pass": "BW", "stage": 0, "micro_batch": 0}}],
        [{{"pass": "F", "stage": 1, "micro_batch": 0}}, {{"pass": "BW", "stage": 1, "micro_batch": 0}}]])",
                       joined);
  };
  const ScheduleParams params{2, 1, 1, 0};
  EXPECT_THAT(deadlock_of(lists(R"(, "joined": true)"), params),
              AllOf(HasSubstr("deadlock"),
                    HasSubstr("(leave \"joined\" of F of stage 0, micro-batch 0 out)")));
  EXPECT_EQ(deadlock_of(lists(""), params), kNoDeadlock);
}

}  // namespace
}  // namespace orrery::sim
