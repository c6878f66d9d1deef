// SPDX-License-Identifier: Apache-2.0
#include "studies/network_picture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <string>

#include "tests/unit/studies/pictures.hpp"

namespace orrery::studies {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::string network_picture(const std::string& name) {
  return network_svg(models::load_network(name));
}

TEST(NetworkPictureTest, EqualBlocksAreOneRowAndSharesAddUp) {
  const std::string svg = network_picture("llama3-8b");
  EXPECT_THAT(svg, AllOf(HasSubstr(">embedding<"), HasSubstr(">32 x dense<"), HasSubstr(">head<")));
  EXPECT_THAT(svg, Not(HasSubstr("shared weights")));
  EXPECT_EQ(count_in(svg, "rx=\"4\""), 3U);
  const std::regex percent(", ([0-9.]+) %<");
  double sum = 0;
  for (std::sregex_iterator at(svg.begin(), svg.end(), percent); at != std::sregex_iterator();
       ++at) {
    sum += std::stod((*at)[1]);
  }
  EXPECT_NEAR(sum, 200, 0.5);  // of parameters and of FLOPs
}

TEST(NetworkPictureTest, PatternsAreDrawnOnce) {
  const std::string svg = network_picture("llama4-maverick");
  EXPECT_EQ(count_in(svg, "rx=\"4\""), 6U);
  EXPECT_THAT(svg, HasSubstr(">12 x<"));
}

TEST(NetworkPictureTest, SharedWeightsAreSaid) {
  EXPECT_THAT(network_picture("gpt2"), HasSubstr("124 M parameters (shared weights once"));
}

}  // namespace
}  // namespace orrery::studies
