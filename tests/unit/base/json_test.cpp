// SPDX-License-Identifier: Apache-2.0
#include "base/json.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "base/limits.hpp"
#include "tests/unit/base/testing.hpp"

namespace orrery {
namespace {

using ::testing::ExitedWithCode;
using ::testing::HasSubstr;
using testing::message_of;
using ::testing::StartsWith;

std::string parse_message(std::string_view text) {
  return message_of([&] { parse_json(text, "x.json"); });
}

std::string repeated(std::string_view text, int times) {
  std::string result;
  for (int i = 0; i < times; ++i) {
    result += text;
  }
  return result;
}

TEST(JsonParseTest, ReadsEveryKind) {
  const Json document = parse_json(
      R"( {"n": null, "t": true, "i": -3, "d": 1.5, "s": "\u00e4\n", "a": [1, []], "o": {}} )",
      "x");
  EXPECT_TRUE(document.find("n")->is_null());
  EXPECT_TRUE(document.find("t")->as_bool());
  EXPECT_EQ(document.find("i")->as_integer(), -3);
  EXPECT_EQ(document.find("d")->as_number(), 1.5);
  EXPECT_EQ(document.find("s")->as_string(), "\xC3\xA4\n");
  EXPECT_EQ(document.find("a")->as_array().size(), 2U);
  EXPECT_TRUE(document.find("o")->as_object().empty());
  EXPECT_EQ(document.find("absent"), nullptr);
  EXPECT_EQ(parse_json("\xEF\xBB\xBF[1]", "x"), Json(Json::Array{1}));  // byte order mark
}

TEST(JsonParseTest, IntegersAreExact) {
  constexpr auto kMax = std::numeric_limits<std::int64_t>::max();
  constexpr auto kMin = std::numeric_limits<std::int64_t>::min();
  EXPECT_EQ(parse_json("9223372036854775807", "x").as_integer(), kMax);
  EXPECT_EQ(parse_json("-9223372036854775808", "x").as_integer(), kMin);
  EXPECT_EQ(parse_json("9007199254740993", "x").as_integer(), 9007199254740993);
  EXPECT_THAT(parse_message("9223372036854775808"), HasSubstr("beyond 64 bits"));
  EXPECT_THAT(parse_message("-9223372036854775809"), HasSubstr("beyond 64 bits"));
  EXPECT_THAT(parse_message(repeated("9", 30)), HasSubstr("beyond 64 bits"));
}

TEST(JsonParseTest, NumbersKeepTheirKind) {
  EXPECT_TRUE(parse_json("4", "x").is_integer());
  EXPECT_FALSE(parse_json("4.0", "x").is_integer());
  EXPECT_FALSE(parse_json("4e2", "x").is_integer());
  EXPECT_THAT(parse_message("1e400"), HasSubstr("number overflow"));
}

TEST(JsonParseTest, MessagesNameFileAndLine) {
  EXPECT_THAT(parse_message("{\n\"a\": 1,\n\"a\": 2}"),
              StartsWith("x.json:3: duplicate key \"a\""));
  EXPECT_THAT(parse_message("[1,\n2,\n9223372036854775808\n]"), StartsWith("x.json:3: "));
  EXPECT_THAT(parse_message("[1,\n\n tru]"), StartsWith("x.json:3: "));
  EXPECT_THAT(parse_message("[1] x"), StartsWith("x.json:1: syntax error"));
  EXPECT_THAT(parse_message(""), StartsWith("x.json: empty document"));
  EXPECT_THAT(parse_message(std::string_view("[1,\n\0]", 6)), StartsWith("x.json:2: NUL byte"));
  EXPECT_THAT(parse_message(std::string_view("\0", 1)), StartsWith("x.json:1: NUL byte"));
  EXPECT_THAT(parse_message(std::string_view("{}\0{}", 5)), HasSubstr("NUL byte"));
}

TEST(JsonParseTest, DepthIsLimited) {
  constexpr int kDepth = limits::kMaxJsonDepth;
  EXPECT_NO_THROW(parse_json(repeated("[", kDepth) + repeated("]", kDepth), "x"));
  EXPECT_THAT(parse_message(repeated("[", kDepth + 1)), HasSubstr("nested more than 64 deep"));
  EXPECT_THAT(parse_message(repeated("[", 100'000)), HasSubstr("nested more than 64 deep"));
  EXPECT_THAT(parse_message(repeated("{\"a\":", 100'000)), HasSubstr("nested more than 64 deep"));
}

TEST(JsonParseTest, SizesAreLimited) {
  const std::string longest(limits::kMaxStringBytes, 's');
  EXPECT_NO_THROW(parse_json(fmt::format("\"{}\"", longest), "x"));
  EXPECT_THAT(parse_message(fmt::format("\"{}s\"", longest)), HasSubstr("string of 65537 bytes"));
  EXPECT_THAT(parse_message(fmt::format("{{\"{}s\": 1}}", longest)),
              HasSubstr("string of 65537 bytes"));
  const std::string array = "[" + repeated("0,", static_cast<int>(limits::kMaxArrayLength) - 1);
  EXPECT_NO_THROW(parse_json(array + "0]", "x"));
  EXPECT_THAT(parse_message(array + "0,0]"), HasSubstr("array of more than 1000000 elements"));
  std::string object = "{";
  for (int i = 0; i < limits::kMaxObjectMembers; ++i) {
    object += fmt::format("\"{}\": 0, ", i);
  }
  EXPECT_THAT(parse_message(object + "\"x\": 0}"), HasSubstr("more than 16384 members"));
}

TEST(JsonParseTest, HostileNumbersEnd) {
  EXPECT_TRUE(parse_json("0." + repeated("3", 1'000'000), "x").is_number());
  EXPECT_THAT(parse_message(repeated("9", 1'000'000) + "e0"), HasSubstr("number overflow"));
}

TEST(JsonTest, SetReplacesAndAppendsInOrder) {
  Json object = Json::object();
  object.set("b", 1);
  object.set("a", "x");
  object.set("b", 2.5);
  EXPECT_EQ(object.dump(-1), R"({"b": 2.5, "a": "x"})");
  Json array = Json::array();
  array.push(true);
  array.push(Json());
  EXPECT_EQ(array.dump(-1), "[true, null]");
  EXPECT_EQ(std::as_const(array).find("a"), nullptr);
}

TEST(JsonDumpTest, IndentsAndKeepsShortScalarArraysOnOneLine) {
  const Json document = parse_json(R"({"a":[1,2,3],"b":{"c":[{"d":[]}]},"e":{}})", "x");
  EXPECT_EQ(document.dump(), R"({
  "a": [1, 2, 3],
  "b": {
    "c": [
      {
        "d": []
      }
    ]
  },
  "e": {}
})");
  EXPECT_EQ(document.dump(-1), R"({"a": [1, 2, 3], "b": {"c": [{"d": []}]}, "e": {}})");
  const Json long_array(Json::Array(50, Json("abc")));
  EXPECT_THAT(long_array.dump(), StartsWith("[\n  \"abc\",\n  \"abc\""));
}

TEST(JsonDumpTest, DoublesAreShortestAndStayDoubles) {
  EXPECT_EQ(Json(1.0).dump(), "1.0");
  EXPECT_EQ(Json(0.1).dump(), "0.1");
  EXPECT_EQ(Json(-0.0).dump(), "-0.0");
  EXPECT_EQ(Json(1e300).dump(), "1e+300");
  EXPECT_EQ(Json(5e-324).dump(), "5e-324");
  EXPECT_EQ(Json(std::int64_t{1} << 62).dump(), "4611686018427387904");
}

TEST(JsonDumpTest, EscapesStrings) {
  EXPECT_EQ(Json("a\"\\\n\t\x01\xC3\xA4").dump(), "\"a\\\"\\\\\\n\\t\\u0001\xC3\xA4\"");
  EXPECT_EQ(Json("\xff").dump(), "\"\\ufffd\"");
  EXPECT_EQ(parse_json(Json("\xff").dump(), "x").as_string(), "\xEF\xBF\xBD");
}

TEST(JsonDeathTest, WrongKindsAndNonFiniteNumbersAreBugs) {
  EXPECT_EXIT(Json(1).as_string(), ExitedWithCode(1), "read as a string");
  EXPECT_EXIT(Json("x").as_number(), ExitedWithCode(1), "read as a number");
  EXPECT_EXIT(Json(1.0).as_integer(), ExitedWithCode(1), "read as an integer");
  EXPECT_EXIT(Json(std::nan("")).dump(), ExitedWithCode(1), "finite");
  EXPECT_EXIT(Json(1).push(2), ExitedWithCode(1), "read as an array");
}

class SetPathTest : public ::testing::Test {
 protected:
  std::string fail(std::string_view path, bool may_add = false) {
    const Json before = document_;
    const std::string message = message_of([&] { set_path(document_, path, "1", may_add); });
    EXPECT_EQ(document_, before) << "a failed change changes nothing";
    return message;
  }
  Json document_ = parse_json(
      R"({"gpu": {"memory": "80 GB"}, "levels": [{"ports": 4}, {"ports": 8}], "none": []})", "x");
};

TEST_F(SetPathTest, SetsMembersAndElements) {
  set_path(document_, "gpu.memory", "96 GB", false);
  set_path(document_, "levels.1.ports", "16", false);
  set_path(document_, "none", R"([1, "a"])", false);
  EXPECT_EQ(document_.find("gpu")->find("memory")->as_string(), "96 GB");
  EXPECT_EQ(document_.find("levels")->as_array()[1].find("ports")->as_integer(), 16);
  EXPECT_EQ(document_.find("none")->dump(-1), R"([1, "a"])");
}

TEST_F(SetPathTest, ReadsValuesThatAreNotJsonAsStrings) {
  set_path(document_, "none", "[1,", false);
  EXPECT_EQ(document_.find("none")->as_string(), "[1,");
  set_path(document_, "none", "", false);
  EXPECT_EQ(document_.find("none")->as_string(), "");
}

TEST_F(SetPathTest, AddsOnlyTheLastNameAndOnlyWhenAllowed) {
  EXPECT_THAT(fail("gpu.memry"), HasSubstr("no member \"memry\" (did you mean \"memory\"?)"));
  EXPECT_THAT(fail("gqu.memory", true), HasSubstr("did you mean \"gpu\"?"));
  set_path(document_, "gpu.clock", "1 GHz", true);
  EXPECT_EQ(document_.find("gpu")->find("clock")->as_string(), "1 GHz");
}

TEST_F(SetPathTest, SaysWhereTheNameStandsWhenItStandsDeeper) {
  EXPECT_THAT(fail("memory"), HasSubstr("no member \"memory\" (did you mean \"gpu.memory\"?)"));
}

TEST_F(SetPathTest, RejectsBadPaths) {
  EXPECT_THAT(fail(""), HasSubstr("empty name"));
  EXPECT_THAT(fail("gpu..memory"), HasSubstr("empty name"));
  EXPECT_THAT(fail("levels.2.ports"), HasSubstr("not an index of the array (0 to 1)"));
  EXPECT_THAT(fail("levels.-1"), HasSubstr("not an index"));
  EXPECT_THAT(fail("levels.1x"), HasSubstr("not an index"));
  EXPECT_THAT(fail("none.0", true), HasSubstr("the array is empty"));
  EXPECT_THAT(fail("gpu.memory.size", true), HasSubstr("no object"));
  EXPECT_THAT(fail(repeated("a.", 100)), HasSubstr("too many steps"));
}

}  // namespace
}  // namespace orrery
