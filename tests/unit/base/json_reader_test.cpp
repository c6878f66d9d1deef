// SPDX-License-Identifier: Apache-2.0
#include "base/json_reader.hpp"

#include <gmock/gmock.h>

#include <array>

#include "tests/unit/base/testing.hpp"

namespace orrery {
namespace {

using ::testing::HasSubstr;
using testing::message_of;

class JsonReaderTest : public ::testing::Test {
 protected:
  // Reads the value of {"v": text} and gives the message of its Error.
  template <typename Read>
  std::string fail(std::string_view text, Read read) {
    const Json document = parse_json("{\"v\": " + std::string(text) + "}", "f.json");
    return message_of([&] { read(JsonReader(document, "f.json").object().required("v")); });
  }
};

TEST_F(JsonReaderTest, ReadsValues) {
  const Json document = parse_json(
      R"({"b": true, "i": 3, "n": 4, "s": "x", "q": "2 GiB", "w": "450 GB/s", "t": "3 us",
          "f": "312 TFLOP/s", "h": "1.5 GHz", "p": "3.6 USD/h", "a": [1, 2], "z": null})",
      "f.json");
  ObjectReader object = JsonReader(document, "f.json").object();
  EXPECT_TRUE(object.required("b").boolean());
  EXPECT_EQ(object.required("i").integer(0, 3), 3);
  EXPECT_EQ(object.required("n").number(0, 10), 4.0);
  EXPECT_EQ(object.required("s").string(), "x");
  EXPECT_EQ(object.required("q").byte_count().value(), 2LL << 30);
  EXPECT_EQ(object.required("q").bytes().value(), 0x1p31);
  EXPECT_EQ(object.required("w").bandwidth().value(), 450e9);
  EXPECT_EQ(object.required("t").duration().value(), 3e-6);
  EXPECT_EQ(object.required("f").flop_rate().value(), 312e12);
  EXPECT_EQ(object.required("h").frequency().value(), 1.5e9);
  EXPECT_DOUBLE_EQ(object.required("p").price().value(), 1e-3);
  EXPECT_EQ(object.required("a").array()[1].integer(0, 9), 2);
  EXPECT_FALSE(object.optional("z").has_value());
  EXPECT_FALSE(object.has("z"));
  EXPECT_EQ(object.integer_or("z", 7, 0, 9), 7);
  EXPECT_EQ(object.number_or("absent", 0.5, 0, 1), 0.5);
  EXPECT_TRUE(object.boolean_or("absent", true));
  EXPECT_EQ(object.string_or("s", "y"), "x");
  EXPECT_EQ(object.keys().size(), 12U);
  EXPECT_NO_THROW(object.finish());
}

TEST_F(JsonReaderTest, MessagesNamePlaceFoundAndExpected) {
  EXPECT_EQ(fail("\"3\"", [](const JsonReader& v) { v.integer(0, 9); }),
            "f.json: /v: expected an integer, found \"3\"");
  EXPECT_EQ(fail("4.0", [](const JsonReader& v) { v.integer(0, 9); }),
            "f.json: /v: expected an integer, found 4.0");
  EXPECT_EQ(fail("10", [](const JsonReader& v) { v.integer(0, 9); }),
            "f.json: /v: 10 is out of range (0 to 9)");
  EXPECT_EQ(fail("1.5", [](const JsonReader& v) { v.number(0, 1); }),
            "f.json: /v: 1.5 is out of range (0 to 1)");
  EXPECT_EQ(fail("[1, 2]", [](const JsonReader& v) { v.number(0, 1); }),
            "f.json: /v: expected a number, found an array of 2");
  EXPECT_EQ(fail("0", [](const JsonReader& v) { v.boolean(); }),
            "f.json: /v: expected true or false, found 0");
  EXPECT_EQ(fail("{}", [](const JsonReader& v) { v.string(); }),
            "f.json: /v: expected a string, found an object");
  EXPECT_EQ(fail("[1, 2]", [](const JsonReader& v) { v.array(1); }),
            "f.json: /v: array of 2 elements (at most 1)");
  EXPECT_EQ(fail("3", [](const JsonReader& v) { v.object(); }),
            "f.json: /v: expected an object, found 3");
}

TEST_F(JsonReaderTest, QuantitiesNeedUnits) {
  EXPECT_EQ(fail("80", [](const JsonReader& v) { v.bytes(); }),
            "f.json: /v: \"80\" has no unit (write \"80 GB\" or \"80 GiB\")");
  EXPECT_THAT(fail("\"450\"", [](const JsonReader& v) { v.bandwidth(); }),
              HasSubstr("write \"450 GB/s\" or \"450 Gbit/s\""));
  EXPECT_THAT(fail("true", [](const JsonReader& v) { v.duration(); }),
              HasSubstr("a quantity such as \"3 us\", found true"));
  EXPECT_THAT(fail("\"0 B\"", [](const JsonReader& v) { v.bytes(); }), HasSubstr("greater than"));
  const Json size = parse_json("\"1.3 GiB\"", "f.json");
  EXPECT_EQ(JsonReader(size, "f.json").byte_count().value(), 1395864371);
  EXPECT_THAT(fail("\"0.3 B\"", [](const JsonReader& v) { v.byte_count(); }),
              HasSubstr("whole number of bytes"));
  EXPECT_THAT(fail("\"2e18 B\"", [](const JsonReader& v) { v.bytes(); }),
              HasSubstr("out of range"));
  const Json zero("0 B");
  EXPECT_EQ(JsonReader(zero, "x").bytes(true).value(), 0.0);
}

TEST_F(JsonReaderTest, OneOfSuggestsTheNearest) {
  static constexpr std::array<std::string_view, 2> kNames = {"ring", "tree"};
  EXPECT_EQ(fail("\"rign\"", [](const JsonReader& v) { v.one_of(kNames); }),
            "f.json: /v: unknown name \"rign\" (did you mean \"ring\"?)");
  const Json tree("tree");
  EXPECT_EQ(JsonReader(tree, "x").one_of(kNames), "tree");
}

TEST_F(JsonReaderTest, ObjectsReportUnknownAndMissingKeys) {
  const Json document = parse_json(R"({"layers": 3, "hiden": 4, "none": null})", "f.json");
  ObjectReader object = JsonReader(document, "f.json").object();
  EXPECT_EQ(object.required("layers").integer(1, 9), 3);
  EXPECT_EQ(message_of([&] { object.required("hidden"); }),
            "f.json: missing key \"hidden\" (there is \"hiden\")");
  EXPECT_EQ(message_of([&] { object.required("heads"); }), "f.json: missing key \"heads\"");
  EXPECT_EQ(message_of([&] { object.required("none"); }), "f.json: null for required key \"none\"");
  EXPECT_EQ(message_of([&] { object.required("nones"); }), "f.json: missing key \"nones\"");
  EXPECT_EQ(message_of([&] { object.finish(); }),
            "f.json: unknown key \"hiden\" (did you mean \"hidden\"?)");
  ObjectReader foreign = JsonReader(document, "f.json").object();
  foreign.ignore_rest();
  EXPECT_NO_THROW(foreign.finish());
}

TEST_F(JsonReaderTest, PointersAreEscapedAndNested) {
  const Json document = parse_json(R"({"a/b": [{"c~d": "x"}]})", "f.json");
  ObjectReader object = JsonReader(document, "f.json").object();
  const JsonReader element = object.required("a/b").array()[0];
  EXPECT_EQ(element.object().required("c~d").where(), "f.json: /a~1b/0/c~0d");
  EXPECT_EQ(object.value().where(), "f.json");
}

TEST_F(JsonReaderTest, SchemaAndVersionAreChecked) {
  const auto check = [](std::string_view text) {
    const Json document = parse_json(text, "f.json");
    ObjectReader object = JsonReader(document, "f.json").object();
    object.expect_schema("orrery.plan", 1);
    object.finish();
  };
  EXPECT_NO_THROW(check(R"({"schema": "orrery.plan", "version": 1})"));
  EXPECT_THAT(message_of([&] { check(R"({"version": 1})"); }), HasSubstr("missing key \"schema\""));
  EXPECT_THAT(message_of([&] { check(R"({"schema": "orrery.gpu", "version": 1})"); }),
              HasSubstr("/schema: schema \"orrery.gpu\" (\"orrery.plan\" is expected here)"));
  EXPECT_THAT(message_of([&] { check(R"({"schema": "orrery.plan", "version": 2})"); }),
              HasSubstr("/version: version 2 of orrery.plan (version 1 is read here)"));
}

}  // namespace
}  // namespace orrery
