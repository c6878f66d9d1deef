// SPDX-License-Identifier: Apache-2.0
#include "base/error.hpp"

#include <gmock/gmock.h>

#include "tests/unit/base/testing.hpp"

namespace orrery {
namespace {

using ::testing::EndsWith;
using ::testing::ExitedWithCode;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(ErrorTest, JoinsPlaceMessageAndHint) {
  EXPECT_STREQ(Error(ErrorKind::BadInput, "a.json: /b", "wrong", "right").what(),
               "a.json: /b: wrong (right)");
  EXPECT_STREQ(Error(ErrorKind::BadInput, "", "wrong").what(), "wrong");
  EXPECT_EQ(Error(ErrorKind::DeviceMissing, "", "x").kind(), ErrorKind::DeviceMissing);
}

TEST(ErrorTest, EscapesControlCharacters) {
  EXPECT_STREQ(Error(ErrorKind::BadInput, "a\nb", "\x1b[31m\x7f", "\t").what(),
               "a\\nb: \\x1b[31m\\x7f (\\t)");
}

TEST(ErrorTest, NeverExceedsFourThousandCharacters) {
  const std::string huge(100'000, 'x');
  const std::string text = Error(ErrorKind::BadInput, huge, huge + "\x01", huge).what();
  EXPECT_LE(text.size(), 4000U);
  EXPECT_GT(text.size(), 3900U);
  EXPECT_THAT(text, EndsWith("...)"));
  EXPECT_EQ(std::string(Error(ErrorKind::BadInput, "", huge).what()).size(), 4000U);
}

TEST(ErrorTest, ALongMessageLeavesPlaceAndHint) {
  const std::string text =
      Error(ErrorKind::BadInput, "file", std::string(100'000, 'x'), "hint").what();
  EXPECT_THAT(text, StartsWith("file: "));
  EXPECT_THAT(text, EndsWith("... (hint)"));
}

TEST(ErrorTest, KnowsItsPlace) {
  const Error error(ErrorKind::BadInput, "a.json: /b", "wrong");
  EXPECT_EQ(error.where(), "a.json: /b");
  EXPECT_EQ(Error(ErrorKind::BadInput, "", "a.json: wrong").where(), "");
  EXPECT_STREQ(error.in_file("a.json").what(), "a.json: /b: wrong");
  EXPECT_STREQ(error.in_file("a").what(), "a: a.json: /b: wrong");
  EXPECT_STREQ(error.in_file("a.json: /b").what(), "a.json: /b: wrong");
  EXPECT_STREQ(error.in_file("a.json: /c").what(), "a.json: /c: a.json: /b: wrong");
  EXPECT_STREQ(Error(ErrorKind::BadInput, "a.json: /b/0", "wrong").in_file("a.json: /b").what(),
               "a.json: /b/0: wrong");
  const Error placed = Error(ErrorKind::InputOutput, "tp", "a.json is wrong").in_file("a.json");
  EXPECT_STREQ(placed.what(), "a.json: tp: a.json is wrong");
  EXPECT_EQ(placed.kind(), ErrorKind::InputOutput);
  EXPECT_STREQ(placed.in_file("a.json").what(), placed.what());
}

TEST(ErrorTest, ResultsOfActionsOnAFilePassThrough) {
  EXPECT_EQ(in_file("a.json", [] { return 3; }), 3);
  EXPECT_EQ(testing::message_of([] { in_file("a.json", [] { bad_input("", "wrong"); }); }),
            "a.json: wrong");
}

TEST(ErrorTest, BadInputThrowsItsKind) {
  const auto error = testing::error_of([] { bad_input("w", "m", "h"); });
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->kind(), ErrorKind::BadInput);
}

TEST(CheckDeathTest, AFailedCheckExitsWithOne) {
  EXPECT_EXIT(ORRERY_CHECK(1 + 1 == 3, "sum\n"), ExitedWithCode(1),
              "1 \\+ 1 == 3 does not hold at .*error_test.cpp:.*sum");
}

TEST(CheckTest, AHeldCheckDoesNothing) { ORRERY_CHECK(true, "never"); }

}  // namespace
}  // namespace orrery
