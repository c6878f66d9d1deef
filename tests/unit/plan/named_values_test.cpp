// SPDX-License-Identifier: Apache-2.0
#include "plan/named_values.hpp"

#include <gtest/gtest.h>

#include <array>
#include <string>

#include "base/error.hpp"

namespace orrery::plan {
namespace {

enum class Colour : std::uint8_t { Red, Green };
constexpr auto kColours = std::to_array<std::string_view>({"red", "green"});

TEST(NamedValues, CountInTheOrderOfTheirNames) {
  EXPECT_EQ(parse_named<Colour>(kColours, "green", "here", "colour"), Colour::Green);
  EXPECT_EQ(index_of_name(kColours, "red", "here", "colour"), 0);
  EXPECT_EQ(name_of(kColours, Colour::Green), "green");
}

TEST(NamedValues, OtherNamesAreErrorsWithTheNearest) {
  try {
    (void)parse_named<Colour>(kColours, "gren", "/here", "colour");
    FAIL();
  } catch (const Error& error) {
    const std::string said = error.what();
    EXPECT_NE(said.find("/here"), said.npos);
    EXPECT_NE(said.find("unknown colour \"gren\""), said.npos);
    EXPECT_NE(said.find("\"green\""), said.npos);
  }
}

}  // namespace
}  // namespace orrery::plan
