// SPDX-License-Identifier: Apache-2.0
#include "base/text.hpp"

#include <gmock/gmock.h>

namespace orrery {
namespace {

using ::testing::ElementsAre;

const std::vector<std::string> kNames = {"ring", "tree", "double-binary-tree", "rails"};

TEST(TextTest, NearestNameIsTheClosest) {
  EXPECT_EQ(nearest_name("rign", kNames), "ring");
  EXPECT_EQ(nearest_name("rnig", kNames), "ring") << "two swapped letters are one mistake";
  EXPECT_EQ(nearest_name("TREE", kNames), "tree");
  EXPECT_EQ(nearest_name("double-binarytree", kNames), "double-binary-tree");
}

TEST(TextTest, NearestNameIsEmptyWhenNoneIsClose) {
  EXPECT_EQ(nearest_name("xyzxyzxyz", kNames), "");
  EXPECT_EQ(nearest_name("", kNames), "");
  EXPECT_EQ(nearest_name("ring", {}), "");
  EXPECT_EQ(nearest_name(std::string(1'000'000, 'r'), kNames), "");
}

TEST(TextTest, MisspeltNamesAreAFewLettersOff) {
  const std::vector<std::string> names = {"bf16", "cp", "gradient_accumulation_steps",
                                          "gpus_per_node"};
  EXPECT_EQ(misspelt_name("gradient_acumulation_step", names), "gradient_accumulation_steps");
  EXPECT_EQ(misspelt_name("bf61", names), "bf16");
  EXPECT_EQ(misspelt_name("BF16", names), "bf16");
  for (const char* other :
       {"bf16", "sp", "fp8", "fp32", "gradient_accumulation_dtype", "gpus_per_rack", ""}) {
    EXPECT_EQ(misspelt_name(other, names), "") << other;
  }
}

TEST(TextTest, HintNamesTheNearestOrListsTheKnown) {
  EXPECT_EQ(nearest_hint("rign", kNames), "did you mean \"ring\"?");
  EXPECT_EQ(nearest_hint("xyzxyzxyz", kNames), "known: ring, tree, double-binary-tree, rails");
  EXPECT_EQ(nearest_hint("x", {}), "");
  const std::vector<std::string> many(13, "name-far-away");
  const std::string hint = nearest_hint("q", many);
  EXPECT_TRUE(hint.ends_with(", name-far-away, ..."));
}

TEST(TextTest, HintNamesWhatIsWrittenInPart) {
  const std::vector<std::string> names = {"llama3-70b", "llama3-8b", "llama-13b", "mixtral-8x7b"};
  EXPECT_EQ(nearest_hint("llama3", names), "did you mean one of llama3-70b, llama3-8b?");
  EXPECT_EQ(nearest_hint("Mix", names), "did you mean \"mixtral-8x7b\"?");
  EXPECT_EQ(nearest_hint("8x7b", names), "did you mean \"mixtral-8x7b\"?");
  EXPECT_EQ(nearest_hint("gpt", {names.data(), 1}), "known: llama3-70b") << "three letters apart";
}

TEST(TextTest, SplitKeepsEmptyParts) {
  EXPECT_THAT(split("a,b,,c", ','), ElementsAre("a", "b", "", "c"));
  EXPECT_THAT(split("", ','), ElementsAre(""));
  EXPECT_THAT(split(",", ','), ElementsAre("", ""));
}

TEST(TextTest, TrimAndLower) {
  EXPECT_EQ(trim(" \t a b \r\n"), "a b");
  EXPECT_EQ(trim(" \n "), "");
  EXPECT_EQ(to_lower("H100-SXM \xC3\x84"), "h100-sxm \xC3\x84");
}

TEST(TextTest, KebabCase) {
  EXPECT_TRUE(is_kebab_case("zb-h1"));
  EXPECT_TRUE(is_kebab_case("1f1b"));
  for (const char* bad : {"", "-a", "a-", "a--b", "A", "a_b", "a b", "a.b"}) {
    EXPECT_FALSE(is_kebab_case(bad)) << bad;
  }
}

TEST(TextTest, PrintableEscapesWhatATerminalActsOn) {
  EXPECT_EQ(printable("a\n\x1b[2J"), "a\\n\\x1b[2J");
  EXPECT_EQ(printable(std::string_view("\0", 1)), "\\x00");
  EXPECT_EQ(printable("\xC2\x9B"), "\\u009b");  // C1 control sequence introducer
  EXPECT_EQ(printable("\xE2\x80\xAE"
                      "x"),
            "\\u202ex");  // right-to-left override
  EXPECT_EQ(printable("\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80"),
            "\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80");
}

TEST(TextTest, PrintableEscapesInvalidUtf8) {
  EXPECT_EQ(printable("\xff"), "\\xff");
  EXPECT_EQ(printable("\xC3"), "\\xc3");                    // cut short
  EXPECT_EQ(printable("\xC0\xAF"), "\\xc0\\xaf");           // overlong
  EXPECT_EQ(printable("\xED\xA0\x80"), "\\xed\\xa0\\x80");  // surrogate
  EXPECT_EQ(printable("\xF5\x80\x80\x80"), "\\xf5\\x80\\x80\\x80");
}

TEST(TextTest, PrintableCutsAtWholeCharacters) {
  EXPECT_EQ(printable("abcdef", 6), "abcdef");
  EXPECT_EQ(printable("abcdefg", 6), "abc...");
  EXPECT_EQ(printable("ab\xC3\xA4\xC3\xA4\xC3\xA4", 6), "ab...");
  EXPECT_EQ(printable("abc", 2), "..");
  EXPECT_EQ(printable("abc", 0), "");
  EXPECT_EQ(printable("", 5), "");
}

TEST(TextTest, CountedNouns) {
  EXPECT_EQ(counted(1, "plan"), "1 plan");
  EXPECT_EQ(counted(0, "plan"), "0 plans");
  EXPECT_EQ(counted(1'361'778, "plan"), "1361778 plans");
  EXPECT_EQ(counted(1, "mesh", "meshes"), "1 mesh");
  EXPECT_EQ(counted(2, "mesh", "meshes"), "2 meshes");
}

TEST(TextTest, Utf8Length) {
  EXPECT_EQ(utf8_length("a"), 1U);
  EXPECT_EQ(utf8_length("\xC3\xA4x"), 2U);
  EXPECT_EQ(utf8_length("\xF4\x8F\xBF\xBF"), 4U);
  EXPECT_EQ(utf8_length("\xF4\x90\x80\x80"), 0U);
  EXPECT_EQ(utf8_length("\x80"), 0U);
}

}  // namespace
}  // namespace orrery
