// SPDX-License-Identifier: Apache-2.0
// Updates in the lists of a schedule document: messages say what to change.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/error.hpp"
#include "sim/orders/schedule_document.hpp"

namespace orrery::sim {
namespace {

std::string message_of_lists(const std::string& passes) {
  const std::string text = R"({"schema": "orrery-schedule", "version": 1, "name": "mine",
      "versions": "stashed", "passes": [[)" +
                           passes + "]]}";
  try {
    order_of(read_schedule_document(parse_json(text, "mine.json"), "mine.json"),
             {.stages = 1, .micro_batches = 4});
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::string forward_and_backward(int micro_batch) {
  const std::string number = std::to_string(micro_batch);
  return R"({"pass": "F", "stage": 0, "micro_batch": )" + number +
         R"(}, {"pass": "BW", "stage": 0, "micro_batch": )" + number + "}, ";
}

std::string update(int number) {
  return R"({"pass": "U", "stage": 0, "update": )" + std::to_string(number) + "}";
}

TEST(ListedUpdates, SayHowManyDivideTheMicroBatches) {
  const std::string all = forward_and_backward(0) + forward_and_backward(1) +
                          forward_and_backward(2) + forward_and_backward(3);
  EXPECT_THAT(message_of_lists(all + update(0) + ", " + update(1) + ", " + update(2)),
              testing::HasSubstr("3 updates of a stage do not divide its 4 micro-batches: list 2"));
  EXPECT_EQ(message_of_lists(all + update(0) + ", " + update(1)), "");
}

TEST(ListedUpdates, NameWhatIsMissingOrDoubled) {
  const std::string all = forward_and_backward(0) + forward_and_backward(1) +
                          forward_and_backward(2) + forward_and_backward(3);
  EXPECT_THAT(message_of_lists(all + update(3)),
              testing::HasSubstr("missing pass: U of stage 0, update 0"));
  EXPECT_THAT(message_of_lists(all + update(0) + ", " + update(2)),
              testing::HasSubstr("missing pass: U of stage 0, update 1"));
  for (const std::string& last : {update(0), update(1) + ", " + update(0)}) {
    EXPECT_THAT(message_of_lists(all + update(0) + ", " + last),
                testing::HasSubstr("doubled pass: U of stage 0, update 0 is listed twice"));
  }
  EXPECT_THAT(message_of_lists(all + update(1) + ", " + update(0)),
              testing::HasSubstr("update 1 of stage 0 is not in turn: update 0 comes next"));
}

TEST(ListedUpdates, SayAfterWhichBackwards) {
  EXPECT_THAT(
      message_of_lists(forward_and_backward(0) + update(0) + ", " + forward_and_backward(1) +
                       forward_and_backward(2) + forward_and_backward(3) + update(1)),
      testing::HasSubstr("is listed before gradients it uses: list it after 2 of its backwards"));
}

}  // namespace
}  // namespace orrery::sim
