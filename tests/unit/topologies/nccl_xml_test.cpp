// SPDX-License-Identifier: Apache-2.0
// Small topology files written for these tests in the form that NCCL dumps.
#include "topologies/nccl_xml.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/error.hpp"
#include "topologies/cluster.hpp"

namespace orrery::topologies {
namespace {

using testing::HasSubstr;

// Two sockets, each with PCIe switches that hold one GPU and one NIC.
std::string hopper_node(int gpus, int links) {
  std::string text = "<system version=\"1\">\n";
  for (int socket = 0; socket < 2; ++socket) {
    text += fmt::format(
        "  <cpu numaid=\"{}\" arch=\"x86_64\" vendor=\"GenuineIntel\" familyid=\"6\">\n", socket);
    for (int gpu = socket * gpus / 2; gpu < (socket + 1) * gpus / 2; ++gpu) {
      text += fmt::format(
          "    <pci busid=\"0000:{0:02x}:00.0\" class=\"0x060400\" link_speed=\"32.0 GT/s PCIe\" "
          "link_width=\"16\">\n"
          "      <pci busid=\"0000:{1:02x}:00.0\" class=\"0x030200\" device=\"0x2330\" "
          "link_speed=\"32.0 GT/s PCIe\" link_width=\"16\">\n"
          "        <gpu dev=\"{2}\" sm=\"90\" rank=\"{2}\" gdr=\"1\">\n",
          0x10 + gpu, 0x40 + gpu, gpu);
      for (int device = 0; device < 4; ++device) {
        text += fmt::format(
            "          <nvlink target=\"0000:{:02x}:00.0\" count=\"{}\" tclass=\"0x068000\"/>\n",
            0xd0 + device, links / 4 + (device < links % 4 ? 1 : 0));
      }
      text += fmt::format(
          "        </gpu>\n      </pci>\n"
          "      <pci busid=\"0000:{0:02x}:00.0\" class=\"0x020700\" link_speed=\"32.0 GT/s PCIe\" "
          "link_width=\"16\">\n"
          "        <nic><net name=\"mlx5_{1}\" dev=\"{1}\" speed=\"400000\" port=\"1\" "
          "latency=\"0.000000\" gdr=\"1\"/></nic>\n      </pci>\n    </pci>\n",
          0x80 + gpu, gpu);
    }
    text += "  </cpu>\n";
  }
  return text + "</system>\n";
}

Cluster read(const std::string& text) {
  Json document = Json::object();
  document.set("schema", "orrery-cluster");
  document.set("version", 1);
  document.set("node", node_document_of_nccl_xml(text, "topo.xml"));
  document.set("nodes", 1);
  return read_cluster(document, "topo.xml");
}

std::string message_of(const std::string& text) {
  try {
    read(text);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(NcclXml, HopperNodeEqualsTheNamedOne) {
  const Cluster cluster = read(hopper_node(8, 18));
  const Node& node = cluster.node;
  const Node named = load_cluster("hgx-h100").node;
  EXPECT_EQ(cluster.gpu.name, "h100-sxm5-80gb");
  EXPECT_EQ(node.gpus, 8);
  EXPECT_EQ(node.scale_up.builder, "nvswitch");
  EXPECT_EQ(node.scale_up.links_per_gpu, named.scale_up.links_per_gpu);
  EXPECT_EQ(node.scale_up.bandwidth_per_gpu, named.scale_up.bandwidth_per_gpu);
  EXPECT_EQ(node.scale_up.nccl_bandwidth, named.scale_up.nccl_bandwidth);
  EXPECT_EQ(node.scale_up.nccl_channels, named.scale_up.nccl_channels);
  EXPECT_TRUE(node.scale_up.in_switch_reduction);
  EXPECT_EQ(node.scale_out.nics, 8);
  EXPECT_EQ(node.scale_out.nic_bandwidth, named.scale_out.nic_bandwidth);
  EXPECT_EQ(node.gpus_per_pcie_switch, 1);
  EXPECT_EQ(node.sockets, 2);
  EXPECT_EQ(node.cpu_vendor, "intel");
  EXPECT_NEAR(node.host_link_per_gpu.value(), 63e9, 1e6);
}

TEST(NcclXml, DirectLinksBecomeAMesh) {
  std::string text = "<system version=\"1\"><cpu arch=\"ppc64\">";
  for (int gpu = 0; gpu < 4; ++gpu) {
    text += fmt::format(
        "<pci busid=\"000{0}:00:00.0\" link_speed=\"8 GT/s\" link_width=\"16\"><gpu dev=\"{0}\" "
        "sm=\"70\"><nvlink target=\"000{1}:00:00.0\" count=\"3\"/></gpu></pci>",
        gpu, gpu ^ 1);
  }
  const Cluster cluster = read(text + "</cpu></system>");
  EXPECT_EQ(cluster.node.scale_up.builder, "cube-mesh");
  EXPECT_THAT(cluster.node.scale_up.mesh,
              testing::ElementsAre(std::array<int, 3>{0, 1, 3}, std::array<int, 3>{2, 3, 3}));
  EXPECT_EQ(cluster.node.scale_up.bandwidth_per_gpu, BytesPerSecond(75e9));
  EXPECT_EQ(cluster.node.cpu_vendor, "ibm");
  EXPECT_EQ(cluster.node.scale_out.nics, 0);
  EXPECT_EQ(cluster.gpu.name, "v100-sxm2-32gb");
  EXPECT_EQ(cluster.node.gpus_per_pcie_switch, 0);
}

TEST(NcclXml, DeviceNamesTheGpu) {
  const auto gpu_of = [](const std::string& device, int sm) {
    return read(fmt::format(
                    "<system><cpu><pci busid=\"1\" device=\"{}\"><gpu sm=\"{}\"/></pci></cpu>"
                    "</system>",
                    device, sm))
        .gpu.name;
  };
  EXPECT_EQ(gpu_of("0x2335", 90), "h200-sxm5-141gb");
  EXPECT_EQ(gpu_of("0x20b0", 80), "a100-sxm4-40gb");
  EXPECT_EQ(gpu_of("0xffff", 80), "a100-sxm4-80gb");  // stands for others
  EXPECT_THAT(message_of("<system><cpu><pci busid=\"1\"><gpu sm=\"75\"/></pci></cpu></system>"),
              HasSubstr("compute capability 75 are not known"));
}

TEST(NcclXml, OneKindOfGpuInANode) {
  const auto node_of = [](const std::string& second) {
    return "<system><cpu><pci busid=\"1\" device=\"0x2330\"><gpu sm=\"90\"/></pci><pci "
           "busid=\"2\" " +
           second + "</pci></cpu></system>";
  };
  EXPECT_THAT(message_of(node_of("device=\"0x20b2\"><gpu sm=\"80\"/>")),
              HasSubstr("GPUs of two kinds, h100-sxm5-80gb and a100-sxm4-80gb (leave those of one "
                        "kind in the file)"));
  EXPECT_THAT(message_of(node_of("device=\"0x2335\"><gpu sm=\"90\"/>")),
              HasSubstr("h100-sxm5-80gb and h200-sxm5-141gb"));
  EXPECT_EQ(read(node_of("device=\"0xffff\"><gpu sm=\"90\"/>")).node.gpus, 2);  // no such kind
}

TEST(NcclXml, VirtualMachinesShowNoLinkSpeed) {
  const Cluster cluster = read(
      "<system><cpu vendor=\"AuthenticAMD\"><pci busid=\"1\" link_speed=\"\" link_width=\"0\">"
      "<gpu sm=\"80\"/></pci><nic><net speed=\"100000\" latency=\"75.0\"/><net speed=\"1000\"/>"
      "</nic></cpu></system>");
  EXPECT_NEAR(cluster.node.host_link_per_gpu.value(), 15.75e9, 1);
  EXPECT_EQ(cluster.node.scale_up.builder, "pcie");
  EXPECT_EQ(cluster.node.scale_out.nics, 1);
  EXPECT_NEAR(cluster.node.scale_out.plugin_latency.value(), 75e-6, 1e-12);
}

TEST(NcclXml, LoadsAsACluster) {
  const std::string path = testing::TempDir() + "orrery_nccl_topology.xml";
  std::ofstream(path) << hopper_node(8, 18);
  EXPECT_EQ(load_cluster(path, {"nodes=4"}).num_gpus(), 32);
  std::filesystem::remove(path);
}

TEST(NcclXml, ErrorsNameTheLine) {
  EXPECT_THAT(
      message_of("<system>\n<cpu>\n<pci busid=\"1\">\n<gpu sm=\"x\"/></pci></cpu></system>"),
      testing::AllOf(HasSubstr("topo.xml:4"), HasSubstr("sm=\"x\"")));
  EXPECT_THAT(message_of("<system>\n<cpu>\n</system>"), HasSubstr("topo.xml:3"));
}

TEST(NcclXml, Hostile) {
  const auto one = [](const std::string& pci, const std::string& gpu) {
    return "<system><cpu><pci " + pci + "><gpu " + gpu + "</pci></cpu></system>";
  };
  EXPECT_EQ(message_of(one("busid=\"1\"", "sm=\"80\"/>")), "no error");
  for (const std::string& text :
       {std::string(), std::string("<a/>"), std::string("<system/>"),
        std::string("<system><cpu/></system>"), one("", "sm=\"80\"/>"), one("busid=\"1\"", "/>"),
        one("busid=\"1\"", "sm=\"1e99\"/>"), one("busid=\"1\"", "sm=\"-1\"/>"),
        one("busid=\"1\" busid=\"2\"", "sm=\"80\"/>"),
        one("busid=\"1\" link_speed=\"fast\"", "sm=\"80\"/>"),
        one("busid=\"1\" link_width=\"x\"", "sm=\"80\"/>"),
        one("busid=\"1\"", "sm=\"80\"><nvlink count=\"1\"/></gpu>"),
        one("busid=\"1\"", "sm=\"80\"><nvlink target=\"2\" count=\"1e9\"/></gpu>"),
        std::string("<system><cpu><gpu sm=\"80\"/></cpu></system>"),
        std::string("<system><cpu><nic><net speed=\"0\"/></nic></cpu></system>")}) {
    EXPECT_NE(message_of(text), "no error") << text;
  }
}

TEST(NcclXml, DeepNesting) {
  std::string text = "<system><cpu>";
  for (int i = 0; i < 100'000; ++i) {
    text += "<pci busid=\"1\">";
  }
  EXPECT_NE(message_of(text), "no error");
  for (int i = 0; i < 100'000; ++i) {
    text += "</pci>";
  }
  EXPECT_THAT(message_of(text + "</cpu></system>"), HasSubstr("nested too deeply"));
}

}  // namespace
}  // namespace orrery::topologies
