// SPDX-License-Identifier: Apache-2.0
#include "topologies/network_words.hpp"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>

#include "topologies/network_clauses.hpp"
#include "topologies/rate_words.hpp"

namespace orrery::topologies {
namespace {

using RateOf = StatedNetwork::RateOf;
using Adapters = std::pair<int, double>;  // of a node, and Gbit/s of each; (0, 0): not understood

Adapters adapters_in(const std::string& words) {
  const auto network = parse_network(words);
  if (!network) {
    return {0, 0};
  }
  const bool whole = network->of == RateOf::Node && network->nics > 0;
  return {network->nics, whole ? network->gigabits / network->nics : network->gigabits};
}

TEST(NetworkWords, GigabitsSpelt) {
  for (const char* words : {"100 Gigabit Ethernet", "100 GigE", "100 Gigabit", "100 gigabit/s",
                            "100 gigabits/s", "0.1 terabit/s", "12.5 gigabytes/s"}) {
    EXPECT_EQ(adapters_in(words), Adapters(0, 100)) << words;
  }
  EXPECT_EQ(adapters_in("8x 100 Gigabit Ethernet"), Adapters(8, 100));
  EXPECT_EQ(adapters_in("100 gigabits/s x4"), Adapters(4, 100));
  EXPECT_EQ(adapters_in("80 gigabytes"), Adapters(0, 0));  // of memory
  EXPECT_EQ(unit_of_rate("GPUs"), 0);
}

// The number behind the sign is a rate, not a count.
TEST(NetworkWords, RatesWithoutAUnitBehindAGeneration) {
  EXPECT_EQ(adapters_in("HDR InfiniBand 4 x 200"), Adapters(4, 200));
  EXPECT_EQ(adapters_in("NDR InfiniBand 8 x 400"), Adapters(8, 400));
  EXPECT_EQ(adapters_in("NDR InfiniBand, 8 x 200"), Adapters(8, 200));
  EXPECT_EQ(adapters_in("NDR InfiniBand x 8"), Adapters(8, 400));
}

TEST(NetworkWords, AdaptersOfOtherClauses) {
  for (const char* words :
       {"200 Gb/s HDR, 4 HCAs/node", "4 HCAs/node, 200 Gb/s HDR", "4 NICs per node, 200 Gb/s HDR",
        "4 NICs/node, 200 Gb/s each", "HDR (4 HCAs/node)"}) {
    EXPECT_EQ(adapters_in(words), Adapters(4, 200)) << words;
  }
  // It may be the rate of all four.
  EXPECT_EQ(adapters_in("4 HCAs, 200 Gb/s"), Adapters(0, 200));
  EXPECT_TRUE(parse_network("4 HCAs, 200 Gb/s")->unread_count);
}

TEST(NetworkWords, ClausesThatCountTheAdaptersOfANode) {
  EXPECT_EQ(adapters_in("1 NIC per node, 200 Gb/s"), Adapters(1, 200));
  EXPECT_EQ(adapters_in("4 HCAs/node, 200 Gb/s"), Adapters(4, 200));
  EXPECT_EQ(adapters_in("4 NICs/node (25 GB/s)"), Adapters(4, 200));
  EXPECT_EQ(adapters_in("200 Gb/s; three NICs per server"), Adapters(3, 200));
  EXPECT_EQ(adapters_in("4 NICs per node, 800 Gb/s per node"), Adapters(4, 200));
  EXPECT_EQ(adapters_in("4 NICs per node in use, 200 Gb/s"), Adapters(0, 200));
}

TEST(NetworkWords, GenerationsAreOfAPort) {
  for (const char* words :
       {"2x dual-port HDR100", "2x dual port HDR100", "dual-port HDR100 x2",
        "2x dual-port HDR100 (400 Gb/s)", "2 dual-port HDR100 NICs", "400 Gb/s (2x 2-port HDR100)",
        "2x dual-port ConnectX-6 (100 Gb/s per port)", "2 HCAs per node, dual-port HDR100"}) {
    EXPECT_EQ(adapters_in(words), Adapters(4, 100)) << words;
  }
  for (const char* words : {"2-port HDR100", "dual-port HDR100", "dual port HDR100"}) {
    EXPECT_EQ(adapters_in(words), Adapters(2, 100)) << words;
  }
  EXPECT_EQ(adapters_in("2x dual-port HDR100 (200 Gb/s each)"), Adapters(2, 200));
  EXPECT_EQ(adapters_in("4x dual-port 200Gb (800 Gb/s per node)"), Adapters(4, 200));
  EXPECT_EQ(adapters_in("dual-port 200 Gb/s"), Adapters(0, 200));
  const auto of_gpu = parse_network("one dual-port HDR100 NIC per GPU");
  EXPECT_EQ(of_gpu->of, RateOf::Gpu);
  EXPECT_EQ(of_gpu->gigabits, 200);
}

TEST(NetworkWords, AdaptersThatGpusShare) {
  const Cluster usual = load_cluster("dgx-h100:2");
  for (const char* words :
       {"one NDR NIC per 2 GPUs", "one 400 Gb/s NIC per two GPUs", "400 Gb/s per 2 GPUs",
        "one NIC per 2 GPUs, 400 Gb/s", "400 Gb/s per pair of GPUs", "400 Gb/s per GPU pair",
        "400 Gb/s/2 GPUs", "2 NDR NICs per 4 GPUs", "NDR per 2 GPUs (400 Gb/s)",
        "two GPUs share a 400 Gb/s NIC", "two GPUs share one 400 Gb/s NIC", "400 Gb/s, 2 GPUs/NIC",
        "400 Gb/s NDR, 2 GPUs per NIC", "2 GPUs of a node share one HCA, NDR",
        "NDR, one NIC per 2 GPUs"}) {
    const auto network = parse_network(words);
    ASSERT_TRUE(network.has_value()) << words;
    EXPECT_EQ(network->of, RateOf::Gpu) << words;
    EXPECT_EQ(network->gpus_each, 2) << words;
    EXPECT_EQ(network->gigabits, 400) << words;
    EXPECT_EQ(network_overrides(*network, usual, 8).front(), "node.scale_out.nics=4") << words;
    EXPECT_EQ(network_overrides(*network, usual, 3).front(), "node.scale_out.nics=2") << words;
  }
  EXPECT_EQ(parse_network("400 Gb/s per-GPU")->gpus_each, 1);
  EXPECT_EQ(parse_network("400 Gb/s per-GPU")->of, RateOf::Gpu);
  EXPECT_EQ(adapters_in("4x HDR (1 per 2 GPUs)"), Adapters(4, 200));
  EXPECT_EQ(adapters_in("IB 4xHDR (2 GPUs share one NIC)"), Adapters(4, 200));
  EXPECT_EQ(parse_network("100G RoCE, 2 GPUs per NIC")->link, "roce");
  EXPECT_NE(parse_network("8 GPUs per node with NICs, 200 Gb/s")->of, RateOf::Gpu);
  EXPECT_EQ(parse_network("2 GPUs per NIC, 800 Gb/s per node")->of, RateOf::Node);
  EXPECT_NE(parse_network("400 Gb/s per 8-GPU node")->of, RateOf::Gpu);
  EXPECT_NE(parse_network("400 Gb/s per 8 GPU node")->of, RateOf::Gpu);
}

TEST(NetworkWords, CountedRatesNeedNoUnit) {
  for (const char* words :
       {"4x200", "4 x 200", "4x200 IB", "4x200 RoCE", "4*200 per node", "4x200/node", "IB: 4x200",
        "4x200, rail-optimised", "4x200 (1 per GPU)", "DGX A100, 4x200", "4x200 Mellanox"}) {
    EXPECT_EQ(adapters_in(words), Adapters(4, 200)) << words;
    EXPECT_EQ(parse_network(words)->of, RateOf::Nic) << words;
  }
  EXPECT_EQ(adapters_in("4x400 IB"), Adapters(4, 400));
  EXPECT_EQ(parse_network("1x400 IB per 2 GPUs")->gpus_each, 2);
  for (const char* words :
       {"4x300", "4x2000", "8x100 V100", "8xV100", "4x100 nodes", "8x8x100", "512x100", "8x40 GB",
        "A100 8x40", "4x200/switch", "4x25 per GPU", "p5.48x200", "4x100.5", "x200", "0x200"}) {
    EXPECT_EQ(adapters_in(words), Adapters(0, 0)) << words;
  }
}

TEST(NetworkWords, OtherNetworksAreNotTheNodes) {
  for (const char* words :
       {"8x HDR200 + 1x100 GbE storage", "8x HDR, 2x100GbE (frontend)", "8x HDR (2x100GbE storage)",
        "1 GbE management, 8x200Gb HDR", "25 Gb/s out-of-band; 8x HDR", "8x HDR with 100 GbE mgmt",
        "8x200 (compute), 2x100 (for storage and management)", "8x HDR without storage",
        "in-band 25 GbE and 8x HDR", "8x HDR (8 compute, 2 storage)", "8x HDR and 600 GB/s NVLink",
        "storage: 2x100 GbE; compute: 8x HDR", "8x HDR (storage apart)"}) {
    EXPECT_EQ(adapters_in(words), Adapters(8, 200)) << words;
  }
  EXPECT_EQ(adapters_in("NDR400 8x (compute) and 2x100GbE (frontend)"), Adapters(0, 400));
  EXPECT_EQ(adapters_in("NVLink 600 GB/s, 100 Gb/s IB"), Adapters(0, 100));
  EXPECT_EQ(adapters_in("100 Gb/s (storage)"), Adapters(0, 0));
  EXPECT_EQ(parse_network("8x HDR IB + 25 GbE RoCE storage")->link, "ib");
}

TEST(NetworkWords, ClausesOfTheNodesNetworkStay) {
  for (const char* words :
       {"200 Gb/s IB for compute and storage", "storage and compute: 200 Gb/s IB",
        "200 Gb/s IB for storage and compute", "compute + storage 200 Gb/s IB"}) {
    EXPECT_EQ(adapters_in(words), Adapters(0, 200)) << words;
  }
  for (const std::string words :
       {"200 Gb/s IB (compute and storage)", "NVLink/IB 400 Gb/s", "8x400Gb, NIC on NVLink 4",
        "8x400Gb RoCE per node; 3-tier CLOS, 1:7 oversubscription", "8x NDR (rails, leaf & spine)",
        "8x NDR (", "8x NDR) (4", "", "()"}) {
    EXPECT_EQ(without_side_networks(words), words);
  }
  EXPECT_EQ(without_side_networks("8x IB (compute; 1x storage)"), "8x IB (compute)");
  EXPECT_EQ(without_side_networks("8x IB (1x storage"), "8x IB ");
}

TEST(NetworkWords, BracketsStateThePorts) {
  for (const char* words : {"800 Gb/s OSFP x 4 (8x400 Gb/s)", "800 Gb/s OSFP (8x400 Gb/s)",
                            "4x OSFP 800 Gb/s (8 x 400 Gb/s)", "400 Gb/s NDR (8x400 Gb/s)"}) {
    EXPECT_EQ(adapters_in(words), Adapters(8, 400)) << words;
  }
  EXPECT_EQ(adapters_in("800 Gb/s OSFP x 4"), Adapters(4, 800));
  EXPECT_EQ(adapters_in("8x400 Gb/s (4x400 Gb/s in use)"), Adapters(8, 400));
  EXPECT_EQ(adapters_in("4x400 Gb/s (16x100 Gb/s lanes)"), Adapters(4, 400));
  EXPECT_EQ(adapters_in("400 Gb/s (2x 150 Gb/s measured)"), Adapters(0, 400));
}

TEST(NetworkWords, HostileTexts) {
  for (const std::string_view part : {"x100", "4x100 z ", "(", ",", "()", "storage ", "per 2 ",
                                      "with ", "dual port ", " ", "NVLink 6 ", "1 NIC per "}) {
    std::string words;
    while (words.size() < 60'000) {
      words += part;
    }
    parse_network(words);
    parse_network(words + "HDR");
  }
}

}  // namespace
}  // namespace orrery::topologies
