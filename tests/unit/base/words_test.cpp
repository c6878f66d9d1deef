// SPDX-License-Identifier: Apache-2.0
#include "base/words.hpp"

#include <gtest/gtest.h>

#include <array>

namespace orrery {
namespace {

constexpr auto kFabrics = std::to_array<std::string_view>({"ib", "roce"});

TEST(WordsTest, AWordIsNoPartOfAnother) {
  EXPECT_EQ(find_word("ribs on ib", "ib"), 8);
  EXPECT_EQ(find_word("ib, ib", "ib", 1), 4);
  EXPECT_EQ(find_word("ib2 8ib", "ib"), std::string_view::npos);
  EXPECT_EQ(find_word("two-level ib", "level"), 4);
  EXPECT_TRUE(has_word("200 gb/s (roce)", kFabrics));
  EXPECT_FALSE(has_word("rocev2", kFabrics));
  EXPECT_FALSE(has_word("", kFabrics));
}

TEST(WordsTest, APhraseMayBe) {
  EXPECT_TRUE(says_any("rocev2", kFabrics));
  EXPECT_FALSE(says_any("RoCE", kFabrics));
  EXPECT_TRUE(mentions("RoCEv2", "rOCe"));
  EXPECT_FALSE(mentions("IB", "roce"));
}

TEST(WordsTest, AmongOthers) {
  EXPECT_TRUE(is_among("ib", kFabrics));
  EXPECT_FALSE(is_among("ib ", kFabrics));
  EXPECT_FALSE(is_among("ib", {}));
}

}  // namespace
}  // namespace orrery
