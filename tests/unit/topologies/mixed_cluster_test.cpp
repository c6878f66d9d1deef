// SPDX-License-Identifier: Apache-2.0
#include "topologies/mixed_cluster.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/json.hpp"
#include "tests/unit/base/testing.hpp"

namespace orrery::topologies {
namespace {

using orrery::testing::error_of;
using orrery::testing::message_of;
using ::testing::HasSubstr;

TEST(MixedCluster, NodesAndCountsJoinedByPlus) {
  ASSERT_TRUE(names_mixed_cluster("hgx-h100:4+dgx-a100:2"));
  ASSERT_FALSE(names_mixed_cluster("hgx-h100:4"));
  const MixedCluster cluster = load_mixed_cluster("hgx-h100:4+dgx-a100:2");
  ASSERT_EQ(cluster.pools.size(), 2U);
  EXPECT_EQ(cluster.pools[0].name, "hgx-h100");
  EXPECT_EQ(cluster.pools[1].name, "dgx-a100");
  EXPECT_EQ(cluster.num_gpus(), 48);
}

TEST(MixedCluster, OverridesReachOnePool) {
  const MixedCluster cluster =
      load_mixed_cluster("hgx-h100:1+dgx-a100:1", {"dgx-a100.gpu.memory=40 GiB"});
  EXPECT_EQ(cluster.pools[1].cluster.gpu.memory, ByteCount(40LL << 30));
  EXPECT_GT(cluster.pools[0].cluster.gpu.memory, ByteCount(70LL << 30));
  EXPECT_THAT(message_of([] {
                load_mixed_cluster("hgx-h100:1+dgx-a100:1", {"dgx-h100.gpu.memory=40 GiB"});
              }),
              HasSubstr("does not begin with a pool"));
}

TEST(MixedCluster, DocumentStandsAlone) {
  const std::string path =
      (std::filesystem::temp_directory_path() / "orrery-mixed-cluster-test.json").string();
  std::ofstream(path) << R"({"schema": "orrery-mixed-cluster", "version": 1, "name": "two",
    "pools": [{"name": "fast", "cluster": "hgx-h100:2"}, {"name": "slow", "cluster": "hgx-h100:1"}],
    "between": {"bandwidth_per_node": "10 GB/s", "latency": "20 us"}})";
  ASSERT_TRUE(names_mixed_cluster(path));
  const MixedCluster cluster = load_mixed_cluster(path);
  const MixedCluster again = read_mixed_cluster(cluster.document, "document");
  EXPECT_EQ(again.document.dump(), cluster.document.dump());
  const Cluster across = network_across(again, {0, 1}, 1 << 20);
  EXPECT_EQ(across.num_nodes, 3);
  EXPECT_DOUBLE_EQ(across.node.scale_out.nic_bandwidth.value() * across.node.scale_out.nics, 10e9);
  EXPECT_DOUBLE_EQ(across.node.scale_out.latency.value(), 20e-6);
  std::filesystem::remove(path);
}

// A group is as fast as the slowest network of its members, whatever their order.
TEST(MixedCluster, TheWeakestNodeCounts) {
  for (const char* text : {"hgx-h100:4+dgx-a100:4", "dgx-a100:4+hgx-h100:4"}) {
    const Cluster across = network_across(load_mixed_cluster(text), {0, 1}, 8);
    EXPECT_EQ(across.node.name, "dgx-a100");
    EXPECT_EQ(across.num_nodes, 8);
  }
  const Cluster part = network_across(load_mixed_cluster("hgx-h100:1+dgx-a100:1"), {0, 1}, 2);
  EXPECT_EQ(part.node.gpus, 2);
  EXPECT_EQ(part.node.scale_out.nics, 2);
}

// NCCL chooses among the protocols that all nodes of a group have.
TEST(MixedCluster, ProtocolsAreThoseOfAllNodes) {
  const auto has_both = [](const char* text) {
    const ScaleOut out = network_across(load_mixed_cluster(text), {0, 1}, 8).node.scale_out;
    return std::pair(out.low_latency, out.low_latency_128);
  };
  EXPECT_EQ(has_both("v100-pcie-8:1+p4d:1"), std::pair(true, false));
  EXPECT_EQ(has_both("p4d:1+v100-pcie-8:1"), std::pair(true, false));
  EXPECT_EQ(has_both("v100-pcie-8:1+a3-ultra:1"), std::pair(false, true));
}

TEST(MixedCluster, WhatIsWrongIsSaid) {
  EXPECT_THAT(message_of([] { load_mixed_cluster("hgx-h100:1+hgx-h100:2"); }),
              HasSubstr("two pools are called \"hgx-h100\""));
  EXPECT_THAT(message_of([] { load_mixed_cluster("hgx-h100:1+dgx-a10:2"); }),
              HasSubstr("dgx-a100"));
  EXPECT_THAT(message_of([] { load_cluster("hgx-h100:1+dgx-a100:1"); }),
              HasSubstr("several kinds of nodes"));
  EXPECT_THAT(message_of([] { load_mixed_cluster("hgx-h100:1+dgx-a100:1+"); }),
              HasSubstr("a pool beside \"+\" has no name"));
  // A slash alone makes no file of it.
  EXPECT_THAT(message_of([] { load_cluster("hgx-h100:1+hgx/h100:2"); }),
              HasSubstr("neither a name nor a file"));
  const Json document = parse_json(R"({"schema": "orrery-mixed-cluster", "version": 1,
                                       "pools": [{"cluster": "nan GB/s"}]})",
                                   "mixed.json");
  const auto error = error_of([&] { read_mixed_cluster(document, "mixed.json"); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->kind(), ErrorKind::BadInput);
  EXPECT_THAT(error->what(), HasSubstr("cluster \"nan GB/s\": neither a name nor a file"));
}

}  // namespace
}  // namespace orrery::topologies
