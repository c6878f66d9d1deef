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

TEST(AdapterCounts, Ports) {
  EXPECT_EQ(adapters_before("4-port ", true).nics, 4);
  EXPECT_EQ(adapters_before("4-port ", true).ports, 1);
  EXPECT_EQ(adapters_before("2x 2-port ", true).nics, 2);
  EXPECT_EQ(adapters_before("2x 2-port ", true).ports, 2);
  EXPECT_EQ(adapters_before("2x dual port ", true).nics, 2);
  EXPECT_EQ(adapters_before("2x dual port ", true).ports, 2);
  EXPECT_EQ(adapters_before("quad-port ", true).nics, 0);  // of adapters that something else counts
  EXPECT_EQ(adapters_before("quad-port ", true).ports, 4);
  EXPECT_EQ(adapters_before("4 port ", true).nics, 4);
  EXPECT_EQ(adapters_before("single port ", true).nics, 1);
}

TEST(AdapterCounts, OfOtherClauses) {
  EXPECT_EQ(adapters_named("4 NICs, 200 Gb/s each"), 4);
  EXPECT_EQ(adapters_named("200 Gb/s each, eight HCAs per node"), 8);
  EXPECT_EQ(adapters_named("4 of 8 NICs in use"), 4);
  EXPECT_EQ(adapters_named("200 Gb/s HDR, 4 HCAs/node"), 4);
  EXPECT_EQ(adapters_named("one NIC per GPU"), 0);
  EXPECT_EQ(adapters_named("1 NIC/GPU"), 0);
  EXPECT_EQ(adapters_named("1 NIC per 2 GPUs"), 0);
  EXPECT_EQ(adapters_named("NICs of 200 Gb/s"), 0);
  EXPECT_EQ(adapters_named(""), 0);
  EXPECT_TRUE(names_adapters_behind("Gb HDR NICs (IB)"));
  EXPECT_FALSE(names_adapters_behind("Gb/s per NIC"));
  EXPECT_FALSE(names_adapters_behind("Gb/s, NICs"));
}

TEST(AdapterCounts, WordsForTheirKindStandBetween) {
  for (const std::string kind : {"RoCE", "RDMA", "InfiniBand", "Mellanox", "Mellanox RoCE"}) {
    EXPECT_EQ(adapters_named("4 " + kind + " NICs, 100 Gb/s each"), 4) << kind;
  }
  for (const std::string text :
       {"8 GPUs, RoCE NICs", "NVLink 4, RoCE NICs", "PCIe gen 4, RoCE NICs",
        "4 of its own very fast NICs", "400G RoCE NICs", "4 RoCE NICs per GPU"}) {
    EXPECT_EQ(adapters_named(text), 0) << text;
  }
  EXPECT_TRUE(names_adapters_behind("Gb/s NICs per node"));
  EXPECT_TRUE(names_adapters_behind("G RoCE NICs per server"));
  EXPECT_FALSE(names_adapters_behind("Gb/s NICs per GPU"));
}

TEST(AdapterCounts, BehindARate) {
  EXPECT_EQ(adapters_behind("Gb/s x4"), 4);
  EXPECT_EQ(adapters_behind("-11 x4"), 4);
  EXPECT_EQ(adapters_behind(" InfiniBand (8 NICs)"), 8);
  EXPECT_EQ(adapters_behind(", 2 per node"), 2);
  EXPECT_EQ(adapters_behind(" (2/node)"), 2);
  EXPECT_EQ(adapters_behind("Gb/s NIC x4"), 4);
  EXPECT_EQ(adapters_behind("Gbps x 4 RoCE"), 4);
  EXPECT_EQ(adapters_behind("Gb/s, four per node"), 4);
  EXPECT_EQ(adapters_behind("Gb/s per port, 8 ports"), 8);
  EXPECT_EQ(adapters_behind("Gbit/s per NIC, 4 NICs per node"), 4);
  EXPECT_EQ(adapters_behind("Gb/s HDR, 4 HCAs/node"), 4);
  EXPECT_EQ(adapters_behind("gigabits/s x4"), 4);
  EXPECT_EQ(adapters_behind("Gb/s OSFP x 4 (8x400"), 4);
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

TEST(AdapterCounts, Words) {
  EXPECT_EQ(count_in_words("12"), 12);
  EXPECT_EQ(count_in_words("four"), 4);
  EXPECT_EQ(count_in_words("4x"), 0);
  EXPECT_TRUE(is_per_node("/node"));
  EXPECT_TRUE(is_per_node("per server"));
  EXPECT_FALSE(is_per_node("per switch"));
  EXPECT_FALSE(is_per_node(""));
}

TEST(AdapterCounts, WordsThatCount) {
  EXPECT_TRUE(counts_adapters("IB, 4x Foo"));
  EXPECT_TRUE(counts_adapters("IB (four NICs)"));
  EXPECT_TRUE(counts_adapters("4 HCAs/node, IB"));
  EXPECT_TRUE(counts_adapters("multi-rail IB"));
  EXPECT_FALSE(counts_adapters("8x H100, IB"));
  EXPECT_FALSE(counts_adapters("HDR 4x"));  // lanes
  EXPECT_FALSE(counts_adapters(""));
}

}  // namespace
}  // namespace orrery::topologies
