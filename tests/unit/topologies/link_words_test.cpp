// SPDX-License-Identifier: Apache-2.0
#include "topologies/link_words.hpp"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "topologies/network_words.hpp"

namespace orrery::topologies {
namespace {

double gigabits_of_name(const std::string& text) {
  const auto generation = find_generation(text);
  return generation ? generation->gigabits : 0;
}

TEST(LinkWords, GenerationsSayTheirRate) {
  const std::map<std::string, double> rates = {{"InfiniBand NDR", 400},
                                               {"8xHDR100", 100},
                                               {"Omni-Path", 100},
                                               {"ndrx", 0},
                                               {"8x", 0},
                                               {"", 0}};
  for (const auto& [text, gigabits] : rates) {
    EXPECT_EQ(gigabits_of_name(text), gigabits) << text;
  }
}

TEST(LinkWords, ReleasesOfSlingshot) {
  for (const char* name : {"4x Slingshot-10", "Slingshot 10", "Slingshot10 x4"}) {
    EXPECT_EQ(gigabits_of_name(name), 100) << name;
  }
  for (const char* name : {"Slingshot", "Slingshot-11", "Slingshot 11 x4", "Slingshot 100"}) {
    EXPECT_EQ(gigabits_of_name(name), 200) << name;
  }
  for (const char* words : {"4x Slingshot-10", "Slingshot 10 x4", "4 Slingshot-10 NICs",
                            "Slingshot-10, 4x100 Gb/s", "4 NICs per node, Slingshot 10"}) {
    EXPECT_EQ(parse_network(words)->nics, 4) << words;
    EXPECT_EQ(parse_network(words)->gigabits, 100) << words;
  }
}

TEST(LinkWords, WhereANameStands) {
  const auto generation = find_generation("4x HPE Slingshot-11 NICs");
  EXPECT_EQ(generation->begin, 7);
  EXPECT_EQ(generation->end, 19);
}

TEST(LinkWords, KindsOfNetworks) {
  EXPECT_EQ(link_of("OmniPath"), "omni-path");
  EXPECT_EQ(link_of("200 Gb/s RoCEv2"), "roce");
  EXPECT_EQ(link_of("GPUDirect-TCPX"), "ethernet");
  EXPECT_EQ(link_of("4xIB"), "");
  EXPECT_EQ(link_of("4x IB"), "ib");
  EXPECT_TRUE(is_link_word("rocev2"));
  EXPECT_FALSE(is_link_word("nic"));
}

}  // namespace
}  // namespace orrery::topologies
