// SPDX-License-Identifier: Apache-2.0
#include "topologies/slurm.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

#include "base/error.hpp"
#include "topologies/clos.hpp"
#include "topologies/summary.hpp"

namespace orrery::topologies {
namespace {

using testing::HasSubstr;

std::string slurm_message(const std::string& text) {
  try {
    parse_slurm_topology(text, "topology.conf");
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

Cluster joined(const SlurmTopology& topology, const std::string& node) {
  return read_cluster(cluster_document_of_slurm(topology, load_cluster(node), "t.conf"), "t");
}

TEST(Slurm, TreeOfTwoLevels) {
  const SlurmTopology topology = parse_slurm_topology(
      "# two racks\n"
      "SwitchName=leaf1 Nodes=node[01-04]\n"
      "switchname=leaf2 nodes=node[05-08] LinkSpeed=400\n"
      "SwitchName=spine Switches=leaf[1-2]\n",
      "topology.conf");
  ASSERT_EQ(topology.leaves.size(), 2U);
  EXPECT_THAT(topology.leaves[1], testing::ElementsAre("node05", "node06", "node07", "node08"));
  EXPECT_EQ(topology.levels, 2);
  EXPECT_EQ(topology.num_nodes(), 8);
}

TEST(Slurm, ThreeLevelsAndContinuedLines) {
  const SlurmTopology topology = parse_slurm_topology(
      "SwitchName=core \\\n  Switches=pod[0-1]\n"
      "SwitchName=pod0 Switches=l[0-2]\nSwitchName=pod1 Switches=l[3-4]\n"
      "SwitchName=l0 Nodes=a[0-1]\nSwitchName=l1 Nodes=b[0-1]\nSwitchName=l2 Nodes=c[0-1]\n"
      "SwitchName=l3 Nodes=d[0-1]\nSwitchName=l4 Nodes=e[0-1]\n",
      "topology.conf");
  EXPECT_EQ(topology.levels, 3);
  EXPECT_EQ(topology.leaves_per_pod, 3);
  const Cluster cluster = joined(topology, "hgx-h100");
  const ClosShape shape = clos_shape(cluster, false);
  EXPECT_EQ(shape.num_leaves(), 5);
  EXPECT_EQ(shape.pods, 2);
}

TEST(Slurm, Blocks) {
  const SlurmTopology topology = parse_slurm_topology(
      "BlockName=b1 Nodes=n[1-18]\nBlockName=b2 Nodes=n[19-36]\nBlockSizes=18,36\n", "t");
  EXPECT_EQ(topology.leaves.size(), 2U);
  const Cluster cluster = joined(topology, "hgx-h100");
  EXPECT_EQ(clos_shape(cluster, false).num_leaves(), 2);
}

TEST(Slurm, FabricOfManyLeavesFits) {
  std::string text;
  for (int leaf = 0; leaf < 300; ++leaf) {
    text += "SwitchName=l" + std::to_string(leaf) + " Nodes=n" + std::to_string(leaf) + "\n";
  }
  const SlurmTopology topology = parse_slurm_topology(text, "t");
  const Cluster cluster = joined(topology, "p4d");
  EXPECT_EQ(clos_shape(cluster, false).num_leaves(), 300);
}

std::string message_of_cluster(const std::string& text) {
  try {
    load_cluster(text);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Slurm, ClusterOfAFile) {
  const std::string path = testing::TempDir() + "slurm_test_topology.conf";
  std::ofstream(path) << "SwitchName=l1 Nodes=n[1-6]\nSwitchName=l2 Nodes=n[7-10]\n"
                         "SwitchName=s Switches=l[1-2]\n";
  const Cluster cluster = load_cluster("hgx-h100@" + path);
  EXPECT_EQ(cluster.num_nodes, 10);
  EXPECT_EQ(cluster.node.name, "hgx-h100");
  EXPECT_EQ(cluster.name, "hgx-h100@" + path);
  EXPECT_EQ(cluster.fabric.nodes_per_leaf, 6);
  const Fabric usual = load_cluster("hgx-h100").fabric;
  EXPECT_EQ(cluster.fabric.switch_latency, usual.switch_latency);
  // Hosts 1 and 6 share a leaf, 6 and 7 do not.
  EXPECT_EQ(switches_between(cluster, 0, 5), 1);
  EXPECT_EQ(switches_between(cluster, 5, 6), 3);
  EXPECT_EQ(load_cluster("hgx-h100@" + path, {"nodes=4"}).num_nodes, 4);

  EXPECT_THAT(message_of_cluster("hgx-h100:4@" + path), HasSubstr("hgx-h100@" + path));
  EXPECT_THAT(message_of_cluster("hgx-h10@" + path), HasSubstr("hgx-h100"));
  EXPECT_THAT(message_of_cluster("gb200-nvl72@" + path), HasSubstr("rack"));
  EXPECT_THAT(message_of_cluster("hgx-h100@missing.conf"), HasSubstr("missing.conf"));
  // A file of another name is one, too.
  const std::string other = testing::TempDir() + "slurm_test.topo";
  std::ofstream(other) << "SwitchName=l1 Nodes=n[1-6]\n";
  EXPECT_EQ(load_cluster("hgx-h100@" + other).num_nodes, 6);
  EXPECT_THAT(message_of_cluster("hgx-h100@missing.topo"), HasSubstr("missing.topo: cannot read"));
  EXPECT_THAT(message_of_cluster("hgx-h100@"), HasSubstr("no SLURM file behind the @"));
  std::remove(other.c_str());
  std::ofstream(path) << "SwitchName=l1 Node=n[1-6]\n";
  EXPECT_THAT(message_of_cluster("hgx-h100@" + path), HasSubstr(path + ":1"));
  std::remove(path.c_str());
}

TEST(Slurm, TabsAreBlanks) {
  EXPECT_EQ(parse_slurm_topology("SwitchName=a\tNodes=n[1-3] \\\n\tLinkSpeed=1\n", "t").num_nodes(),
            3);
}

TEST(Slurm, ErrorsNameTheLine) {
  EXPECT_THAT(slurm_message("SwitchName=a Nodes=ALL\n"), HasSubstr("topology.conf:1: \"ALL\" are"));
  EXPECT_THAT(slurm_message("SwitchName=a Nodes=n1\nSwitchNam=b Nodes=n2\n"),
              testing::AllOf(HasSubstr("topology.conf:2"), HasSubstr("switchname")));
  EXPECT_THAT(slurm_message("SwitchName=s Switches=leaf9\nSwitchName=leaf1 Nodes=a\n"),
              HasSubstr("leaf1"));
  EXPECT_THAT(slurm_message("SwitchName=a Nodes=n1\nSwitchName=a Nodes=n2\n"), HasSubstr("twice"));
  EXPECT_THAT(slurm_message("SwitchName=a Nodes=n1\nSwitchName=b Nodes=n1\n"),
              HasSubstr("two leaves"));
  EXPECT_THAT(slurm_message("SwitchName=a Switches=b\nSwitchName=b Switches=a\n"),
              HasSubstr("below itself"));
  EXPECT_THAT(
      slurm_message("SwitchName=a Switches=c\nSwitchName=b Switches=c\nSwitchName=c Nodes=n\n"),
      HasSubstr("two switches"));
}

TEST(Slurm, ALeafHasPortsForItsNodes) {
  try {
    joined(parse_slurm_topology("SwitchName=a Nodes=n[1-12500]\n", "t.conf"), "hgx-h100");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "t.conf: a leaf with 12500 nodes, of 100000 NICs (at most 32768 NICs)");
  }
}

TEST(Slurm, Hostile) {
  for (const char* text :
       {"", "#", "SwitchName=a\n", "Nodes=a\n", "SwitchName=a Nodes=n[1\n", "SwitchName\n",
        "SwitchName=a Nodes=b Nodes=c\n", "SwitchName=a Nodes=n[1-99999999]\n",
        "SwitchName=a Switches=a\n", "SwitchName=a Nodes=b Switches=c\n", "\\\n", "=\n"}) {
    EXPECT_NE(slurm_message(text), "no error") << text;
  }
  EXPECT_NE(slurm_message(std::string(100'000, 'a')), "no error");
  EXPECT_NE(slurm_message(std::string(10, '\0')), "no error");
}

}  // namespace
}  // namespace orrery::topologies
