// SPDX-License-Identifier: Apache-2.0
#include "base/json.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cmath>
#include <cstring>

#include "base/error.hpp"
#include "base/text.hpp"

namespace orrery {
namespace {

// Text of any Unicode characters, control characters and the surrogate gap included or left out.
rc::Gen<std::string> any_text() {
  const auto character =
      rc::gen::oneOf(rc::gen::map(rc::gen::inRange(0, 128),
                                  [](int c) { return std::string(1, static_cast<char>(c)); }),
                     rc::gen::element<std::string>("\xC3\xA4", "\xE2\x82\xAC", "\xF0\x9F\x98\x80",
                                                   "\xEF\xBF\xBD"));
  return rc::gen::map(rc::gen::container<std::vector<std::string>>(character),
                      [](const std::vector<std::string>& parts) {
                        std::string text;
                        for (const std::string& part : parts) {
                          text += part;
                        }
                        return text;
                      });
}

// Any finite double: random bits, so that subnormal and huge numbers occur.
rc::Gen<double> any_double() {
  return rc::gen::map(rc::gen::arbitrary<std::uint64_t>(), [](std::uint64_t bits) {
    double value = 0.0;
    std::memcpy(&value, &bits, sizeof(value));
    return std::isfinite(value) ? value : 0.5;
  });
}

rc::Gen<Json> any_json(int depth) {
  const auto scalar = rc::gen::oneOf(
      rc::gen::just(Json()),
      rc::gen::map(rc::gen::arbitrary<bool>(), [](bool b) { return Json(b); }),
      rc::gen::map(rc::gen::arbitrary<std::int64_t>(), [](std::int64_t i) { return Json(i); }),
      rc::gen::map(any_double(), [](double d) { return Json(d); }),
      rc::gen::map(any_text(), [](std::string s) { return Json(std::move(s)); }));
  if (depth == 0) {
    return scalar;
  }
  const auto item = rc::gen::scale(0.5, any_json(depth - 1));
  const auto array = rc::gen::map(rc::gen::container<Json::Array>(item),
                                  [](Json::Array a) { return Json(std::move(a)); });
  const auto members =
      rc::gen::container<std::vector<Json::Member>>(rc::gen::pair(any_text(), item));
  const auto object = rc::gen::map(members, [](const std::vector<Json::Member>& list) {
    Json result = Json::object();
    for (const Json::Member& member : list) {
      result.set(member.first, member.second);
    }
    return result;
  });
  return rc::gen::oneOf(scalar, array, object);
}

// True when the parser answered with a document that prints and parses to itself, or with an Error
// of bounded, harmless text. Anything else ends the test.
bool is_answered(const std::string& text) {
  try {
    const Json document = parse_json(text, "f.json");
    return parse_json(document.dump(), "f.json") == document;
  } catch (const Error& error) {
    const std::string message = error.what();
    return message.size() <= 4000 && printable(message, 4000) == message &&
           message.starts_with("f.json:");
  }
}

TEST(JsonPropertyTest, ParsingAPrintedDocumentGivesItBack) {
  EXPECT_TRUE(rc::check("parse(dump(x)) == x", [] {
    const Json document = *any_json(4);
    RC_ASSERT(parse_json(document.dump(), "x") == document);
    RC_ASSERT(parse_json(document.dump(-1), "x") == document);
  }));
}

TEST(JsonPropertyTest, PrintingIsAFixedPoint) {
  EXPECT_TRUE(rc::check("dump(parse(dump(x))) == dump(x)", [] {
    const std::string text = (*any_json(3)).dump();
    RC_ASSERT(parse_json(text, "x").dump() == text);
  }));
}

TEST(JsonPropertyTest, RandomBytesAreAnswered) {
  EXPECT_TRUE(rc::check("parse is total on bytes",
                        [](const std::string& bytes) { RC_ASSERT(is_answered(bytes)); }));
}

TEST(JsonPropertyTest, RandomTokensAreAnswered) {
  EXPECT_TRUE(rc::check("parse is total on tokens", [] {
    const auto tokens = *rc::gen::container<std::vector<std::string>>(rc::gen::element<std::string>(
        "{", "}", "[", "]", ",", ":", "\"a\"", "\"b\"", "1", "-", "1e999", "0.5", "true", "null",
        "\n", "\\", "\"", "9223372036854775808", std::string(1, '\0'), "\xff"));
    std::string text;
    for (const std::string& token : tokens) {
      text += token;
    }
    RC_ASSERT(is_answered(text));
  }));
}

TEST(JsonPropertyTest, MutatedDocumentsAreAnswered) {
  EXPECT_TRUE(rc::check("parse is total on damaged documents", [] {
    std::string text = (*any_json(3)).dump();
    const int num_changes = *rc::gen::inRange(1, 5);
    for (int i = 0; i < num_changes && !text.empty(); ++i) {
      const std::size_t at = *rc::gen::inRange<std::size_t>(0, text.size());
      const std::size_t length = *rc::gen::inRange<std::size_t>(0, 4);
      text.replace(at, length, *rc::gen::arbitrary<std::string>());
    }
    RC_ASSERT(is_answered(text));
  }));
}

TEST(JsonPropertyTest, SetPathIsTotal) {
  EXPECT_TRUE(rc::check("set_path changes the document or throws", [] {
    Json document = *any_json(3);
    const auto steps = *rc::gen::container<std::vector<std::string>>(
        rc::gen::element<std::string>("0", "1", "a", "", "-1"));
    std::string path;
    for (const std::string& step : steps) {
      path += (path.empty() ? "" : ".") + step;
    }
    const Json before = document;
    try {
      set_path(document, path, "true", *rc::gen::arbitrary<bool>());
    } catch (const Error&) {
      RC_ASSERT(document == before);
    }
  }));
}

}  // namespace
}  // namespace orrery
