// SPDX-License-Identifier: Apache-2.0
#include "topologies/adapter_counts.hpp"

#include <gtest/gtest.h>

#include <string>

namespace orrery::topologies {
namespace {

TEST(AdapterCounts, BeforeARate) {
  EXPECT_EQ(adapters_before("8x").nics, 8);
  EXPECT_EQ(adapters_before("8 NICs x ").nics, 8);
  EXPECT_EQ(adapters_before("DGX 8x IB (").nics, 8);
  EXPECT_EQ(adapters_before("4x Broadcom Thor2").nics, 4);
  EXPECT_EQ(adapters_before("4xCX7 ").nics, 4);
  EXPECT_EQ(adapters_before("2x dual-port ").ports, 2);
  EXPECT_EQ(adapters_before("2x dual-port ").nics, 2);
  EXPECT_EQ(adapters_before("4x foo, IB").nics, 0);  // of another clause
  EXPECT_EQ(adapters_before("4x foo + IB").nics, 0);
  EXPECT_EQ(adapters_before("4x 80GB ").nics, 0);
  EXPECT_EQ(adapters_before("8x GPUs ").nics, 0);
  EXPECT_EQ(adapters_before("8xH100 ").nics, 0);
  EXPECT_EQ(adapters_before("24xlarge ").nics, 0);
  EXPECT_EQ(adapters_before("99999x ").nics, 0);
  EXPECT_EQ(adapters_before("").nics, 0);
  EXPECT_EQ(adapters_before("8 ").nics, 0);
  EXPECT_EQ(adapters_before("8 ", true).nics, 8);  // "8 HDR"
  EXPECT_EQ(adapters_before(std::string(60'000, 'a') + " x").nics, 0);
}

TEST(AdapterCounts, BehindARate) {
  EXPECT_EQ(adapters_behind("Gb/s x4"), 4);
  EXPECT_EQ(adapters_behind("-11 x4"), 4);
  EXPECT_EQ(adapters_behind(" InfiniBand (8 NICs)"), 8);
  EXPECT_EQ(adapters_behind(", 2 per node"), 2);
  EXPECT_EQ(adapters_behind(" (2/node)"), 2);
  EXPECT_EQ(adapters_behind(", 2 per switch"), 0);
  EXPECT_EQ(adapters_behind(" x 16 nodes"), 0);
  EXPECT_EQ(adapters_behind(" 4x200"), 0);
  EXPECT_EQ(adapters_behind(""), 0);
}

TEST(AdapterCounts, OfJustARate) {
  EXPECT_EQ(adapters_of_rate("HDR (4 x 200)", 200), 4);
  EXPECT_EQ(adapters_of_rate("HDR 4x2000", 200), 0);
  EXPECT_EQ(adapters_of_rate("HDR x200", 200), 0);
}

TEST(AdapterCounts, WordsThatCount) {
  EXPECT_TRUE(counts_adapters("IB, 4x Foo"));
  EXPECT_TRUE(counts_adapters("IB (four NICs)"));
  EXPECT_TRUE(counts_adapters("multi-rail IB"));
  EXPECT_FALSE(counts_adapters("8x H100, IB"));
  EXPECT_FALSE(counts_adapters("HDR 4x"));  // lanes
  EXPECT_FALSE(counts_adapters(""));
}

}  // namespace
}  // namespace orrery::topologies
