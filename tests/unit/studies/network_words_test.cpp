// SPDX-License-Identifier: Apache-2.0
#include "topologies/network_words.hpp"

#include <gmock/gmock.h>

#include "studies/rows/row_cluster.hpp"
#include "tests/unit/studies/testing.hpp"

namespace orrery::studies {
namespace {

using RateOf = topologies::StatedNetwork::RateOf;
using testing::Changes;
using testing::row_of;

TEST(NetworkWordsTest, ParsesStatedNetworks) {
  const auto ib = topologies::parse_network("8x200Gb IB HDR");
  ASSERT_TRUE(ib.has_value());
  EXPECT_EQ(ib->nics, 8);
  EXPECT_EQ(ib->gigabits, 200);
  EXPECT_EQ(ib->link, "ib");
  const auto whole = topologies::parse_network("800 Gb/s per node");
  ASSERT_TRUE(whole.has_value());
  EXPECT_EQ(whole->nics, 0);
  EXPECT_EQ(whole->gigabits, 800);
  EXPECT_EQ(topologies::parse_network("8x200Gb RoCE (1600 Gb/s per node)")->link, "roce");
  EXPECT_EQ(topologies::parse_network("4 X 25 Gb")->nics, 4);
  EXPECT_EQ(topologies::parse_network("4 X 25 Gb")->gigabits, 25);
  EXPECT_EQ(topologies::parse_network("some Gb, x100Gb")->gigabits, 100);
  EXPECT_FALSE(topologies::parse_network("8x0Gb").has_value());
  EXPECT_FALSE(topologies::parse_network("8" + std::string(60'000, ' ') + "z").has_value());
  EXPECT_FALSE(topologies::parse_network("n/a (single node)").has_value());
  EXPECT_FALSE(topologies::parse_network("not stated").has_value());
}

// What stands in brackets behind a count may be the sum.
TEST(NetworkWordsTest, RatesInBracketsOfCountedAdapters) {
  const auto each = [](const std::string& words) {
    const auto network = topologies::parse_network(words);
    const double whole =
        network->of == RateOf::Node ? network->gigabits / network->nics : network->gigabits;
    return std::pair(network->nics, whole);
  };
  for (const char* words :
       {"4xHDR200 (800 Gb/s per node)", "4x HDR InfiniBand (800 Gb/s)",
        "4 NICs (800 Gb/s per node)", "4x Slingshot-11 (800 Gb/s per node)",
        "4x HDR (100 GB/s per node)", "4 HCAs (800 Gb/s aggregate)",
        "4x HDR IB; 800 Gb/s aggregate", "4 x HDR (200 Gb/s each)", "4x ConnectX-6 (200 Gb/s)",
        "800 Gb/s (4 x 200 Gb/s)", "4 NICs, 200 Gb/s each", "4 200 Gb/s NICs",
        "4 NICs, 800 Gb/s per node", "4x 200Gb/s IB per node"}) {
    EXPECT_EQ(each(words), std::pair(4, 200.0)) << words;
  }
  EXPECT_EQ(each("8x HDR IB (1.6 Tb/s per node)"), std::pair(8, 200.0));
  EXPECT_EQ(each("4x100Gb Omni-Path per node"), std::pair(4, 100.0));
  EXPECT_EQ(each("1:1 400 Gb/s NICs").first, 0);
}

// p3.2xlarge has no EFA, as its file knows.
TEST(NetworkWordsTest, CloudsStandForTheirNetworkWhereNoNodeIsNamed) {
  EXPECT_EQ(topologies::parse_network("400 Gb/s (AWS)")->link, "efa");
  EXPECT_EQ(topologies::parse_network("up to 10Gb/s, ~0.1ms (AWS p3.2xlarge)")->link, "");
  EXPECT_EQ(topologies::parse_network("4x100 Gb/s EFA (AWS p4d.24xlarge)")->link, "efa");
}

TEST(NetworkWordsTest, UnitsAndFractions) {
  EXPECT_EQ(topologies::parse_network("12.5 Gb/s")->gigabits, 12.5);
  EXPECT_EQ(topologies::parse_network("1.6 Tb/s per node")->gigabits, 1600);
  EXPECT_EQ(topologies::parse_network("3.2Tbps EFA")->gigabits, 3200);
  EXPECT_EQ(topologies::parse_network("25GbE")->gigabits, 25);
  EXPECT_EQ(topologies::parse_network("2x 25 GB/s")->gigabits, 200);
  EXPECT_EQ(topologies::parse_network("8x200G RoCE")->gigabits, 200);
  EXPECT_EQ(topologies::parse_network("100 gbps")->gigabits, 100);
  EXPECT_EQ(topologies::parse_network("8 nodes of A100-80GB, 200Gb/s")->gigabits, 200);
}

TEST(NetworkWordsTest, CountsBehindTheKindOfNetwork) {
  for (const std::string text :
       {"HDR InfiniBand 4x200", "HDR IB (4 x 200)", "200Gb/s HDR x4 per node",
        "Slingshot 11 (4x200)", "200 Gb/s InfiniBand x4"}) {
    const auto network = topologies::parse_network(text);
    EXPECT_EQ(network->nics, 4) << text;
    EXPECT_EQ(network->gigabits, 200) << text;
  }
  EXPECT_EQ(topologies::parse_network("HDR InfiniBand, 4x2000 cables")->nics, 0);
  EXPECT_EQ(topologies::parse_network("HDR 4x")->nics, 0);  // lanes
  EXPECT_DOUBLE_EQ(topologies::parse_network("500 Mb/s")->gigabits, 0.5);
}

TEST(NetworkWordsTest, CountsOfAdapters) {
  EXPECT_EQ(topologies::parse_network("8x HDR 200Gb")->nics, 8);
  EXPECT_EQ(topologies::parse_network("8 ConnectX-7 NICs of 400 Gb/s")->nics, 8);
  EXPECT_EQ(topologies::parse_network("8 \xC3\x97 400 Gb/s")->nics, 8);
  EXPECT_EQ(topologies::parse_network("8*400Gb")->nics, 8);
  for (const char* joined : {"8x2x200 Gb/s", "OCI, 8 x 2 x 200 Gbps RoCE"}) {
    EXPECT_EQ(topologies::parse_network(joined)->nics, 16) << joined;
    EXPECT_EQ(topologies::parse_network(joined)->gigabits, 200) << joined;
  }
  EXPECT_EQ(topologies::parse_network("32x8x200 Gb/s")->nics, 0);  // of 32 nodes
  EXPECT_EQ(topologies::parse_network("8 rails of 400 Gb/s")->nics, 8);
  EXPECT_EQ(topologies::parse_network("p3.16xlarge, 25 Gb/s")->nics, 0);
  EXPECT_EQ(topologies::parse_network("p3.16xlarge, 25 Gb/s")->gigabits, 25);
}

TEST(NetworkWordsTest, GenerationsStandForTheirRates) {
  const auto ndr = topologies::parse_network("InfiniBand NDR");
  ASSERT_TRUE(ndr.has_value());
  EXPECT_EQ(ndr->gigabits, 400);
  EXPECT_EQ(ndr->of, RateOf::Nic);
  EXPECT_EQ(ndr->link, "ib");
  EXPECT_EQ(topologies::parse_network("4x EDR")->nics, 4);
  EXPECT_EQ(topologies::parse_network("8xHDR")->nics, 8);
  EXPECT_EQ(topologies::parse_network("8xHDR")->gigabits, 200);
  EXPECT_FALSE(topologies::parse_network("InfiniBand (rate not stated)").has_value());
}

double node_gigabits(const std::string& network, const std::string& gpus_per_node = "8") {
  const auto cluster = row_cluster(
      row_of({{"gpus", "64"}, {"gpus_per_node", gpus_per_node}, {"inter_node", network}}));
  if (!cluster) {
    ADD_FAILURE() << cluster.error();
    return 0;
  }
  const topologies::ScaleOut& out = cluster->node.scale_out;
  return out.nics * out.nic_bandwidth.value() * 8 / 1e9;
}

TEST(NetworkWordsTest, TheRateIsOfANodeAnAdapterOrAGpu) {
  EXPECT_DOUBLE_EQ(node_gigabits("400 Gb/s per node"), 400);
  EXPECT_DOUBLE_EQ(node_gigabits("400 Gb/s per GPU"), 3200);
  EXPECT_DOUBLE_EQ(node_gigabits("400Gbps/GPU"), 3200);
  EXPECT_DOUBLE_EQ(node_gigabits("200 Gb/s per NIC"), 1600);  // a DGX A100 has eight
  EXPECT_DOUBLE_EQ(node_gigabits("InfiniBand HDR"), 1600);
  EXPECT_DOUBLE_EQ(node_gigabits("8x200Gb IB HDR"), 1600);
}

// NVLink domains of trays: rows state the network of a tray.
TEST(NetworkWordsTest, DomainsHaveTheNetworkOfTheirTrays) {
  const auto gigabits = [](const std::string& gpus, const std::string& network) {
    const auto cluster = row_cluster(row_of({{"gpu", "GB200-186GB"},
                                             {"gpus", gpus},
                                             {"gpus_per_node", "4"},
                                             {"inter_node", network}}))
                             .value();
    const topologies::ScaleOut& out = cluster.node.scale_out;
    return out.nics * out.nic_bandwidth.value() * 8 / 1e9 / cluster.node.gpus;
  };
  EXPECT_DOUBLE_EQ(gigabits("256", "4x400Gb IB per tray"), 400);
  EXPECT_DOUBLE_EQ(gigabits("256", "4x200Gb IB per tray"), 200);
  EXPECT_DOUBLE_EQ(gigabits("256", "10 GbE"), 2.5);
  EXPECT_DOUBLE_EQ(gigabits("64", "10 GbE"), 400);  // one domain: no network between
}

TEST(NetworkWordsTest, CountsBehindTheRate) {
  EXPECT_EQ(topologies::parse_network("ConnectX-7 400G x8")->nics, 8);
  EXPECT_EQ(topologies::parse_network("400 Gb/s x 8")->nics, 8);
  EXPECT_EQ(topologies::parse_network("200Gb/s (4 NICs)")->nics, 4);
  EXPECT_EQ(topologies::parse_network("4 NICs x 200 Gb/s")->nics, 4);
  EXPECT_EQ(topologies::parse_network("800Gbps (4x200)")->nics, 0);
  EXPECT_EQ(topologies::parse_network("400 Gb/s x 16 nodes")->nics, 0);
  EXPECT_DOUBLE_EQ(node_gigabits("1x200Gb per GPU"), 1600);
  EXPECT_DOUBLE_EQ(node_gigabits("8x200Gb (1 per GPU)"), 1600);
}

TEST(NetworkWordsTest, TcpIsEthernetWithItsLatency) {
  const auto cluster =
      row_cluster(row_of({{"gpus", "64"}, {"inter_node", "4x200Gb GPUDirect-TCPX"}}));
  EXPECT_EQ(cluster->node.scale_out.link, "ethernet");
  EXPECT_NEAR(cluster->node.scale_out.latency.value(), 25e-6, 1e-9);
}

// "200 Gb/s InfiniBand" of a machine with eight such adapters.
TEST(NetworkWordsTest, TheUsualRateIsAnAdapters) {
  EXPECT_DOUBLE_EQ(node_gigabits("200 Gb/s InfiniBand"), 1600);
  EXPECT_DOUBLE_EQ(node_gigabits("200 Gb/s InfiniBand per node"), 200);
  EXPECT_DOUBLE_EQ(node_gigabits("100 Gb/s InfiniBand"), 100);
}

// A DGX A100 has eight adapters of 200 Gbit/s: half of its rate is four of them, not eight slow
// ones.
TEST(NetworkWordsTest, ARateOfANodeIsThatOfUsualAdapters) {
  const auto nics = [](const std::string& network) {
    return row_cluster(row_of({{"gpus", "64"}, {"gpus_per_node", "8"}, {"inter_node", network}}))
        ->node.scale_out.nics;
  };
  EXPECT_EQ(nics("800 Gb/s per node"), 4);
  EXPECT_EQ(nics("900 Gb/s per node"), 5);
  EXPECT_EQ(nics("25 Gb/s per node"), 1);
  EXPECT_EQ(nics("3200 Gb/s per node"), 8);
  EXPECT_EQ(nics("8x100Gb per node"), 8);
}

TEST(NetworkWordsTest, LinksThatComeInOneRate) {
  EXPECT_DOUBLE_EQ(node_gigabits("4x Omni-Path"), 400);
  EXPECT_DOUBLE_EQ(node_gigabits("Slingshot-11"), 1600);  // eight of a DGX A100's
  EXPECT_DOUBLE_EQ(node_gigabits("Slingshot-11 x4"), 800);
  EXPECT_DOUBLE_EQ(node_gigabits("4x Slingshot 11"), 800);
  EXPECT_EQ(topologies::parse_network("Omni-Path 100")->link, "omni-path");
  EXPECT_EQ(topologies::parse_network("4x100 Gb/s OPA")->link, "omni-path");
  EXPECT_EQ(topologies::parse_network("100 Gb/s in Europa")->link, "");
}

TEST(NetworkWordsTest, NumbersWithThousandsSeparators) {
  EXPECT_DOUBLE_EQ(topologies::parse_network("EFA 3,200 Gbps")->gigabits, 3200);
  EXPECT_DOUBLE_EQ(topologies::parse_network("1,600 Gb/s")->gigabits, 1600);
  EXPECT_DOUBLE_EQ(topologies::parse_network("12,800 Gb/s")->gigabits, 12800);
  EXPECT_DOUBLE_EQ(topologies::parse_network("rev 1.2,200 Gb/s")->gigabits, 200);
  EXPECT_DOUBLE_EQ(topologies::parse_network("NVSwitch3, 400 Gb/s")->gigabits, 400);
}

// A count with its sign is that of adapters, whatever they are called.
TEST(NetworkWordsTest, CountsBeforeAnyAdapter) {
  for (const std::string text :
       {"4x Mellanox CX6 200Gb", "4x HPE Slingshot 200 Gb/s", "4x dual-port 200Gb",
        "4-rail 200Gb/s", "4x Slingshot 11 200Gb", "4x Cray Slingshot-11 (200 Gb/s)",
        "4 Slingshot-11 NICs", "NDR200 x4", "4 Mellanox CX6 NICs of 200Gb", "quad-rail HDR",
        "4 HDR200", "HDR, 4 HCAs per node", "HDR InfiniBand, 4 per node",
        "200Gb/s IB (4 of 8 NICs)", "Slingshot 11 x4"}) {
    const auto network = topologies::parse_network(text);
    EXPECT_EQ(network->nics, 4) << text;
    EXPECT_EQ(network->gigabits, 200) << text;
    EXPECT_FALSE(network->unread_count) << text;
  }
  for (const std::string text : {"4x CX7 400Gb", "4x BF3 400GbE", "4x Thor2 400G"}) {
    EXPECT_EQ(topologies::parse_network(text)->nics, 4) << text;
    EXPECT_EQ(topologies::parse_network(text)->gigabits, 400) << text;
  }
  EXPECT_EQ(topologies::parse_network("2x dual-port HDR100")->nics, 4);  // of a port each
}

TEST(NetworkWordsTest, CountsOfOtherThings) {
  for (const std::string text :
       {"8x H100 400Gb IB", "8x H100, 400Gb IB", "2 nodes x 400 Gb/s", "p5.48xlarge 400 Gb/s EFA",
        "8x A100 80GB HDR 400Gb", "4 levels HDR 400Gb", "ConnectX 7 NDR", "8x SSD and 400Gb"}) {
    EXPECT_EQ(topologies::parse_network(text)->nics, 0) << text;
    EXPECT_FALSE(topologies::parse_network(text)->unread_count) << text;
  }
}

TEST(NetworkWordsTest, OneAdapterOfAGpu) {
  for (const std::string text : {"1x HDR200 per GPU", "1x HDR per GPU", "1 HCA HDR per GPU",
                                 "one HDR NIC per GPU", "HDR per GPU", "HDR InfiniBand (1 per GPU)",
                                 "1 NIC per GPU, 200 Gb/s", "HDR per GPU (200 Gb/s)"}) {
    EXPECT_EQ(topologies::parse_network(text)->of, RateOf::Gpu) << text;
    EXPECT_DOUBLE_EQ(node_gigabits(text), 1600) << text;
  }
  EXPECT_DOUBLE_EQ(node_gigabits("1x HDR per node"), 200);
}

// What the next clause says is of another rate.
TEST(NetworkWordsTest, AdaptersAndTheirNode) {
  const auto stated = topologies::parse_network("InfiniBand NDR 400Gb/s, 3.2Tb/s per node");
  EXPECT_EQ(stated->nics, 8);
  EXPECT_EQ(stated->of, RateOf::Nic);
  EXPECT_DOUBLE_EQ(node_gigabits("HDR 200Gb/s (800 Gb/s per node)"), 800);
  EXPECT_DOUBLE_EQ(node_gigabits("100 Gb/s; NVLink per GPU"), 100);
  EXPECT_DOUBLE_EQ(node_gigabits("200 Gb/s (per node)"), 200);
  EXPECT_DOUBLE_EQ(node_gigabits("800 Gb/s, per node"), 800);
}

TEST(NetworkWordsTest, CountsThatNobodyReadsAreRemarked) {
  const auto assumed = [](const std::string& network) {
    return testing::predicted(
               {{"gpus", "16"}, {"inter_node", network}, {"dp", "4"}, {"num_microbatches", "4"}})
        .assumed;
  };
  EXPECT_THAT(
      assumed("4x Foo, 200Gb"),
      ::testing::Contains("inter_node \"4x Foo, 200Gb\": number of adapters as not stated"));
  EXPECT_THAT(assumed("4x Foo 200Gb"), ::testing::IsEmpty());
  EXPECT_THAT(assumed("200 Gb/s"), ::testing::IsEmpty());
}

TEST(NetworkWordsTest, NodesOfFewGpusOfARailFabric) {
  EXPECT_DOUBLE_EQ(node_gigabits("1 Gb/s", "1"), 1);
  EXPECT_DOUBLE_EQ(node_gigabits("8x200Gb IB HDR", "1"), 1600);
  EXPECT_DOUBLE_EQ(node_gigabits("4x100Gb IB", "2"), 400);
}

// What tools measured stands behind what the adapters are.
TEST(NetworkWordsTest, CountedAdaptersPrecedeOtherRates) {
  const auto stated = topologies::parse_network("8x CX-7 NDR400 IB (ib_write_bw 45 GB/s per HCA)");
  EXPECT_EQ(stated->nics, 8);
  EXPECT_DOUBLE_EQ(stated->gigabits, 400);
  EXPECT_DOUBLE_EQ(topologies::parse_network("4x EDR100 IB per node")->gigabits, 100);
}

}  // namespace
}  // namespace orrery::studies
