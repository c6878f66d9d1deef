// SPDX-License-Identifier: Apache-2.0
// Every bad document of tests/corpus/json fails with one message that names the file and the fault.
#include <gmock/gmock.h>

#include <filesystem>
#include <map>

#include "base/json.hpp"
#include "tests/folders.hpp"
#include "tests/unit/base/testing.hpp"

namespace orrery {
namespace {

const std::map<std::string, std::string> kFaults = {
    {"bad-escape", "invalid string"},
    {"bare-key", "expected string literal"},
    {"blank", "empty document"},
    {"capital-true", "invalid literal"},
    {"comment", "invalid literal"},
    {"duplicate-escaped-key", ":1: duplicate key \"a\""},
    {"duplicate-key", ":3: duplicate key \"a\""},
    {"empty", "empty document"},
    {"gzip", "NUL byte"},
    {"hexadecimal", "expected ']'"},
    {"infinity", "invalid literal"},
    {"integer-below-int64", "beyond 64 bits"},
    {"integer-beyond-int64", "beyond 64 bits"},
    {"integer-huge", "beyond 64 bits"},
    {"invalid-utf8", "UTF-8"},
    {"leading-dot", "invalid literal"},
    {"leading-plus", "invalid literal"},
    {"leading-zero", "expected ']'"},
    {"lone-surrogate", "surrogate"},
    {"long-integer", "number overflow"},
    {"long-key", "string of 65537 bytes"},
    {"mismatched-brackets", "expected ']'"},
    {"missing-colon", "expected ':'"},
    {"missing-comma", "expected ']'"},
    {"nan", "invalid literal"},
    {"newline-in-string", "control character"},
    {"nul-between", "NUL byte"},
    {"nul-in-string", "NUL byte"},
    {"number-overflow", "number overflow"},
    {"number-underflow-below", "number overflow"},
    {"overlong-utf8", "UTF-8"},
    {"single-quotes", "invalid literal"},
    {"stray-bracket", "unexpected ']'"},
    {"too-deep", "nested more than 64 deep"},
    {"trailing-comma", "unexpected ']'"},
    {"trailing-document", ":2: "},
    {"trailing-dot", "expected digit"},
    {"unterminated", "unexpected end of input"},
    {"unterminated-string", "missing closing quote"},
    {"utf16", "text in UTF-16"},
};

TEST(JsonCorpusTest, EveryBadDocumentIsOneClearError) {
  std::size_t count = 0;
  const std::string folder = (orrery::test_folder() / "corpus/json").string();
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string stem = entry.path().stem().string();
    SCOPED_TRACE(stem);
    const auto fault = kFaults.find(stem);
    ASSERT_NE(fault, kFaults.end()) << "the table of this test lacks the file";
    ++count;
    const auto error = testing::error_of([&] { read_json_file(entry.path().string()); });
    ASSERT_TRUE(error.has_value());
    EXPECT_EQ(error->kind(), ErrorKind::BadInput);
    const std::string message = error->what();
    EXPECT_LE(message.size(), 4000U);
    EXPECT_THAT(message, ::testing::StartsWith(entry.path().string()));
    EXPECT_THAT(message, ::testing::HasSubstr(fault->second));
  }
  EXPECT_EQ(count, kFaults.size());
}

}  // namespace
}  // namespace orrery
