// SPDX-License-Identifier: Apache-2.0
#include "topologies/cluster.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "base/error.hpp"
#include "topologies/clos.hpp"

namespace orrery::topologies {
namespace {

using testing::HasSubstr;

std::string cluster_message(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

std::string load_message(const std::string& text, const std::vector<std::string>& set = {}) {
  return cluster_message([&] { load_cluster(text, set); });
}

TEST(LoadCluster, NodeAndCount) {
  const Cluster cluster = load_cluster("dgx-a100:384");
  EXPECT_EQ(cluster.name, "dgx-a100:384");
  EXPECT_EQ(cluster.num_nodes, 384);
  EXPECT_EQ(cluster.num_gpus(), 3072);
  EXPECT_EQ(cluster.gpu.name, "a100-sxm4-80gb");
  EXPECT_EQ(cluster.fabric.builder, "rail-optimised");
  EXPECT_EQ(cluster.node.scale_up.nccl_bandwidth, BytesPerSecond(240e9));
}

TEST(LoadCluster, MemoryAndLinksOfNamedNodes) {
  EXPECT_EQ(load_cluster("dgx-a100-40").gpu.memory.value(), 40441LL << 20);
  EXPECT_EQ(load_cluster("p4d").gpu.name, "a100-sxm4-40gb");
  EXPECT_EQ(load_cluster("dgx-1v").gpu.name, "v100-sxm2-32gb");
  EXPECT_EQ(load_cluster("p3-16xlarge").gpu.memory.value(), 16LL << 30);
  EXPECT_EQ(load_cluster("gb200-nvl72:20").num_gpus(), 1440);
  EXPECT_EQ(load_cluster("p5").node.scale_out.nics, 32);
  EXPECT_EQ(load_cluster("p5").node.scale_out.plugin_latency, Seconds(75e-6));
  EXPECT_EQ(load_cluster("p5.48xlarge").node.name, "p5");
}

BytesPerSecond ring_of(const std::string& node, const std::vector<std::string>& overrides) {
  return load_cluster(node, overrides).node.scale_up.nccl_bandwidth;
}

TEST(LoadCluster, RingsFollowOverriddenLinks) {
  const std::string links = "node.scale_up.bandwidth_per_gpu=";
  EXPECT_EQ(ring_of("hgx-h100", {links + "900 GB/s"}), BytesPerSecond(720e9));
  EXPECT_EQ(ring_of("hgx-h100", {links + "\"225 GB/s\""}), BytesPerSecond(180e9));
  EXPECT_EQ(ring_of("hgx-h100", {"node=dgx-a100", links + "150 GB/s"}), BytesPerSecond(120e9));
  // What is stated stands, in either order.
  const std::string ring = "node.scale_up.nccl_bandwidth=100 GB/s";
  EXPECT_EQ(ring_of("hgx-h100", {ring, links + "900 GB/s"}), BytesPerSecond(100e9));
  EXPECT_EQ(ring_of("hgx-h100", {links + "900 GB/s", ring}), BytesPerSecond(100e9));
  // The host bounds rings over PCIe: faster slots alone do not help.
  EXPECT_EQ(ring_of("h100-pcie-8", {links + "126 GB/s"}), BytesPerSecond(20e9));
  EXPECT_EQ(ring_of("h100-pcie-8", {links + "31.5 GB/s"}), BytesPerSecond(10e9));
  EXPECT_THAT(load_message("hgx-h100", {links + "900"}), HasSubstr("bandwidth_per_gpu"));
}

TEST(LoadCluster, RefusesAFabricThatDoesNotFitTheNodes) {
  const auto fabric = [](const std::string& builder, const std::string& dimensions) {
    return load_message("hgx-h100:64",
                        {"fabric.builder=" + builder, "fabric.dimensions=" + dimensions});
  };
  EXPECT_THAT(fabric("torus", "[4,4]"), HasSubstr("multiply to 16, there are 64 nodes"));
  EXPECT_THAT(load_message("hgx-h100:64", {"fabric.builder=torus"}), HasSubstr("multiply to 0"));
  EXPECT_THAT(fabric("dragonfly", "[4,4]"), HasSubstr("three numbers"));
  EXPECT_EQ(fabric("torus", "[4,4,4]"), "no error");
  EXPECT_THAT(load_message("hgx-h100:64", {"fabric.radix=4"}),
              HasSubstr("cluster \"hgx-h100:64\": /fabric: 32 nodes on a leaf need 32 ports of 4"));
}

// Two NICs a GPU take two ports of a rail's leaf, which then holds half as many nodes, as its ports
// say; what is stated of the fabric stands.
TEST(LoadCluster, LeavesFollowTheNicsOfANode) {
  const std::string nics = "node.scale_out.nics=16";
  EXPECT_EQ(load_cluster("hgx-h100:64", {"node.scale_out.nics=4"}).fabric.nodes_per_leaf, 32);
  EXPECT_EQ(load_cluster("hgx-h100:64", {"node.scale_out.nics=8"}).fabric.nodes_per_leaf, 32);
  const Cluster wider = load_cluster("hgx-h100:64", {nics});
  EXPECT_EQ(wider.fabric.nodes_per_leaf, 0);
  const ClosShape shape = clos_shape(wider, true);
  EXPECT_EQ(shape.per_leaf, 16);
  EXPECT_EQ(shape.width, 2);
  for (const std::string fabric : {"fabric.nodes_per_leaf=8", "fabric.nodes_per_leaf=16"}) {
    const Cluster stated = load_cluster("hgx-h100:64", {fabric, nics});
    EXPECT_EQ(fabric, "fabric.nodes_per_leaf=" + std::to_string(stated.fabric.nodes_per_leaf));
  }
  EXPECT_THAT(load_message("hgx-h100:64", {nics, "fabric.nodes_per_leaf=32"}),
              HasSubstr("a leaf needs 64 ports down and 64 up, it has 64"));
}

TEST(LoadCluster, OverridesReachEveryPart) {
  const Cluster cluster =
      load_cluster("hgx-h100:4", {"gpu.hbm_bandwidth=\"6 TB/s\"", "node.scale_out.nics=4",
                                  "fabric.oversubscription=2", "nodes=16", "gpu.peak.fp8=3 PFLOP/s",
                                  "fabric.leaves_per_pod=2"});
  EXPECT_EQ(cluster.gpu.hbm_bandwidth, BytesPerSecond(6e12));
  EXPECT_EQ(cluster.node.scale_out.nics, 4);
  EXPECT_EQ(cluster.fabric.oversubscription, 2.0);
  EXPECT_EQ(cluster.fabric.leaves_per_pod, 2);
  EXPECT_EQ(cluster.num_nodes, 16);
  EXPECT_EQ(cluster.gpu.peak_of(DType::Fp8), FlopsPerSecond(3e15));
  EXPECT_EQ(cluster.overrides.size(), 6U);
}

TEST(LoadCluster, AnOverrideMayNameAnotherGpu) {
  const Cluster cluster = load_cluster("hgx-h100", {"gpu=H200", "gpu.memory=200 GiB"});
  EXPECT_EQ(cluster.gpu.name, "h200-sxm5-141gb");
  EXPECT_EQ(cluster.gpu.memory.value(), 200LL << 30);
}

TEST(LoadCluster, FactsThatAGpuLeavesOutCanBeSet) {
  const Cluster cluster =
      load_cluster("dgx-a100", {"gpu.short_fp8_sums=true", "gpu.persistent_products=true",
                                "gpu.pci_devices=[\"0x20b2\"]", "gpu.stands_for_others=false"});
  EXPECT_TRUE(cluster.gpu.short_fp8_sums);
  EXPECT_TRUE(cluster.gpu.persistent_products);
  EXPECT_FALSE(cluster.gpu.stands_for_others);
  EXPECT_EQ(cluster.gpu.pci_devices, std::vector<std::string>{"0x20b2"});
}

TEST(LoadCluster, TheDocumentNeedsNoOtherFileAndIsKeptBitForBit) {
  const Cluster cluster = load_cluster("meta-24k-roce", {"gpu.memory=96 GiB", "nodes=64"});
  const Json stored = parse_json(cluster.document.dump(), "plan.json");
  const Cluster again = read_cluster(stored, "plan.json: /cluster");
  EXPECT_EQ(again.document.dump(), cluster.document.dump());
  EXPECT_EQ(again.gpu.memory, cluster.gpu.memory);
  EXPECT_EQ(again.overrides, cluster.overrides);
  EXPECT_TRUE(stored.find("gpu")->is_object());
  EXPECT_TRUE(stored.find("node")->is_object());
  EXPECT_TRUE(stored.find("fabric")->is_object());
}

TEST(LoadCluster, UnknownNamesSuggestTheNearest) {
  EXPECT_THAT(load_message("dgx-a10:2"), HasSubstr("dgx-a100"));
  EXPECT_THAT(load_message("selen"), HasSubstr("selene"));
  EXPECT_THAT(load_message("hgx-h100", {"gpu.hbm_bandwith=6 TB/s"}), HasSubstr("hbm_bandwidth"));
  EXPECT_THAT(load_message("hgx-h100", {"gpus.memory=6 TB"}), HasSubstr("gpu"));
  EXPECT_THAT(load_message("hgx-h100", {"fabric.builder=fat-three"}), HasSubstr("fat-tree"));
  EXPECT_THAT(load_message("hgx-h100", {"gpu=h10"}), HasSubstr("h100"));
  EXPECT_THAT(cluster_message([] { load_gpu("a100-sxm4-80g"); }), HasSubstr("a100-sxm4-80gb"));
}

TEST(ReadCluster, NamesAllMissingMembers) {
  const auto message = [](const char* text) {
    return cluster_message([&] { read_cluster(parse_json(text, "c.json"), "c.json"); });
  };
  EXPECT_THAT(message(R"({"schema": "orrery-cluster", "version": 1})"),
              HasSubstr(R"(c.json: missing keys "gpu", "node", "fabric", "nodes")"));
  Json document = load_cluster("hgx-h100:2").document;
  document.find("node")->set("scale_up", Json::Object{{"builder", "nvswitch"}, {"link", "NVLink"}});
  EXPECT_THAT(cluster_message([&] { read_cluster(document, "c.json"); }),
              HasSubstr(R"(missing keys "bandwidth_per_gpu", "nccl_bandwidth", "nccl_channels", )"
                        R"("latency")"));
}

TEST(LoadCluster, BadCounts) {
  for (const char* text :
       {"hgx-h100:0", "hgx-h100:-1", "hgx-h100:", "hgx-h100:x", "hgx-h100:1.5",
        "hgx-h100:99999999999999999999", "hgx-h100:2000000", "hgx-h100:1048576", "hgx-h100:4:4"}) {
    EXPECT_NE(load_message(text), "no error") << text;
  }
  for (const char* text : {"nodes=0", "nodes=-3", "nodes=1e30", "nodes=true", "nodes="}) {
    EXPECT_NE(load_message("hgx-h100", {text}), "no error") << text;
  }
}

TEST(LoadCluster, BadOverrides) {
  for (const char* text : {"gpu.hbm_bandwidth=6",
                           "gpu.hbm_bandwidth=0 GB/s",
                           "gpu.hbm_bandwidth=nan GB/s",
                           "gpu.hbm_bandwidth=1e300 GB/s",
                           "gpu.memory=-1 GiB",
                           "gpu.memory=80 GB/s",
                           "=",
                           "",
                           "gpu.peak.fp8",
                           "gpu.short_fp8_sums=1",
                           "gpu.pci_devices=[\"0x20B2\"]",
                           "gpu.pci_devices=[\"20b2\"]",
                           "gpu.usual_node=1",
                           "gpu..memory=1 GiB",
                           "gpu=",
                           "node.gpus=0",
                           "node.gpus=99999",
                           "node.scale_up.boards=2",
                           "node.scale_up.mesh=[[0,1,1]]",
                           "fabric.radix=1",
                           "fabric.oversubscription=0.5",
                           "fabric=",
                           "node=null",
                           "name=x"}) {
    EXPECT_NE(load_message("hgx-h100:2", {text}), "no error") << text;
  }
}

TEST(LoadCluster, SeveralNodesNeedANetwork) {
  EXPECT_THAT(load_message("hgx-h100:2", {"node.scale_out.nics=0"}), HasSubstr("no route"));
  EXPECT_EQ(load_message("hgx-h100:1", {"node.scale_out.nics=0"}), "no error");
}

class ClusterDocument : public testing::Test {
 protected:
  static std::string read_message(const std::string& text) {
    return cluster_message([&] { read_cluster(parse_json(text, "file.json"), "file.json"); });
  }
};

TEST_F(ClusterDocument, NamesAreInlined) {
  const Cluster cluster = read_cluster(
      parse_json(R"({"schema": "orrery-cluster", "version": 1, "node": "dgx-a100", "nodes": 2,
                     "gpu": "A100-40GB-SXM"})",
                 "file.json"),
      "file.json");
  EXPECT_EQ(cluster.gpu.name, "a100-sxm4-40gb");
  EXPECT_EQ(cluster.fabric.radix, 40);
}

TEST_F(ClusterDocument, Hostile) {
  EXPECT_NE(read_message("[]"), "no error");
  EXPECT_NE(read_message("{}"), "no error");
  EXPECT_THAT(read_message(R"({"schema": "orrery-cluster", "version": 1, "nodes": 2})"),
              HasSubstr("gpu"));
  EXPECT_THAT(read_message(R"({"schema": "orrery-cluster", "version": 1, "node": "dgx-a100",
                               "nodes": 2, "fabrik": 3})"),
              HasSubstr("\"fabric\""));
  EXPECT_THAT(read_message(R"({"schema": "orrery-cluster", "version": 1, "node": 7, "nodes": 2})"),
              HasSubstr("gpu"));
  EXPECT_THAT(read_message(R"({"schema": "orrery-cluster", "version": 2, "node": "dgx-a100",
                               "nodes": 2})"),
              HasSubstr("version"));
}

// What a node of the document says of its GPU and fabric counts, and is read, whether the cluster
// states others or not.
TEST_F(ClusterDocument, PartsOfANodeThatTheClusterReplacesAreRead) {
  Json document = load_cluster("hgx-h100:2").document;
  const Json gpu = *document.find("gpu");
  const auto message_with = [&](const char* key, const char* value) {
    Json edited = document;
    edited.find("node")->set(key, parse_json(value, "value"));
    return cluster_message([&] { read_cluster(edited, "file.json"); });
  };
  EXPECT_EQ(message_with("fabric", R"({"builder": "single-switch"})"), "no error");
  EXPECT_THAT(message_with("fabric", "5"), HasSubstr("file.json: /node/fabric"));
  EXPECT_THAT(message_with("fabric", R"({"builder": "single-switch", "radix": -64})"),
              HasSubstr("file.json: /node/fabric/radix"));
  EXPECT_THAT(message_with("fabric", R"({"builder": "single-switch", "levles": 2})"),
              HasSubstr("\"levels\""));
  EXPECT_EQ(message_with("gpu", R"("a100-sxm4-80gb")"), "no error");
  EXPECT_EQ(message_with("gpu", gpu.dump().c_str()), "no error");
  EXPECT_THAT(message_with("gpu", R"("no-such-gpu")"), HasSubstr("file.json: /node/gpu"));
  EXPECT_THAT(message_with("gpu", R"({"schema": "zzz"})"), HasSubstr("file.json: /node/gpu"));
  document.set("sources", parse_json(R"({"nodes": 5})", "value"));
  EXPECT_THAT(message_with("gpu", R"("a100-sxm4-80gb")"), HasSubstr("/sources/nodes"));
}

TEST(LoadCluster, FromAFile) {
  const std::string path = testing::TempDir() + "orrery_cluster_test.json";
  std::ofstream(path) << load_cluster("dgx-2:3").document.dump();
  EXPECT_EQ(load_cluster(path).num_gpus(), 48);
  EXPECT_EQ(load_cluster(path, {"nodes=2"}).num_gpus(), 32);
  std::filesystem::remove(path);
  EXPECT_THROW(load_cluster(path), Error);
}

}  // namespace
}  // namespace orrery::topologies
