// SPDX-License-Identifier: Apache-2.0
// Networks whose connections carry less than their NICs.
#include "costmodel/network_connections.hpp"

#include <gtest/gtest.h>

#include "costmodel/collective_model.hpp"
#include "topologies/documents.hpp"

namespace orrery::costmodel {
namespace {

using sim::CommKind;

CollectiveModel model_of(const topologies::Cluster& cluster) {
  return {cluster, load_profile("", cluster.gpu)};
}

// 4 GB summed over 4 nodes (bigscience-workshop/bigscience, experiments/bandwidth): the fifth
// trial.
TEST(NetworkConnectionsTest, RingsOverOmniPathTakeWhatWasMeasured) {
  const CollectiveModel model = model_of(topologies::load_cluster("jean-zay-a100"));
  const Bytes size(4e9);
  EXPECT_NEAR(model.time(CommKind::AllReduce, size, make_group(32, 1, 8)).value(), 1.5304, 0.03);
  const GroupShape half{16, 4, 4, 1, 1, 1};  // the logs' other run, on half of each node
  EXPECT_NEAR(model.time(CommKind::AllReduce, size, half).value(), 1.5051, 0.03);
}

// Eight groups of one GPU a node have two NICs between them, four groups of two what they ask for.
TEST(NetworkConnectionsTest, GroupsOfASocketShareItsNic) {
  const topologies::Cluster cluster = topologies::load_cluster("jean-zay-a100");
  const CollectiveModel model = model_of(cluster);
  const Bytes size(4e9);
  const double nic = 84.8e9 / 8;
  EXPECT_NEAR(model.time(CommKind::AllGather, size, make_group(8, 8, 8)).value(),
              4e9 * 7 / 8 / (nic / 4), 1e-3);
  EXPECT_NEAR(model.time(CommKind::AllGather, size, make_group(8, 4, 8)).value(),
              4e9 * 7 / 8 / connection_rates(cluster.node, 4).ring, 1e-3);
  EXPECT_EQ(connection_rates(cluster.node, 4).ring, connection_rates(cluster.node, 1).ring);
}

TEST(NetworkConnectionsTest, APairHasOneConnection) {
  const topologies::Cluster cluster = topologies::load_cluster("jean-zay-a100");
  const double rate = connection_rates(cluster.node, 1).peer;
  EXPECT_LT(rate, cluster.node.scale_out.nic_bandwidth.value() / 4);
  const CollectiveModel model = model_of(cluster);
  EXPECT_NEAR(model.send_receive(Bytes(1e9), false, 1).value(), 1e9 / rate, 1e-3);
  EXPECT_NEAR(model.send_receive(Bytes(1e9), false, 2).value(), 1e9 / rate, 1e-3);
  EXPECT_LT(model.send_receive(Bytes(1e9), true, 1).value(), 0.1 * 1e9 / rate);
}

TEST(NetworkConnectionsTest, OtherNetworksAreBoundByTheirNics) {
  for (const std::string name : {"dgx-a100:4", "hgx-a100:4", "p4d:4"}) {
    const topologies::Cluster cluster = topologies::load_cluster(name);
    EXPECT_EQ(connection_rates(cluster.node, 1).peer, 0) << name;
    EXPECT_LT(model_of(cluster).time(CommKind::AllReduce, Bytes(4e9), make_group(32, 1, 8)).value(),
              0.5)
        << name;
  }
}

TEST(NetworkConnectionsTest, RailsOfEfaAreOneAdapter) {
  const auto rails = [](const char* cluster) {
    return rails_of_adapter(topologies::load_cluster(cluster).node);
  };
  EXPECT_EQ(rails("p5:2"), 4);    // 32 NICs of 100 Gbit/s, 8 GPUs
  EXPECT_EQ(rails("p5en:2"), 2);  // 16 of 200
  EXPECT_EQ(rails("p4d:2"), 1);
  EXPECT_EQ(rails("hgx-h100:2"), 1);
  // NCCL uses two channels an adapter for a large message.
  const CollectiveModel model = model_of(topologies::load_cluster("p5:2"));
  EXPECT_EQ(model.choose(CommKind::AllGather, Bytes(4e9), make_group(16, 1, 8)).channels, 16);
}

}  // namespace
}  // namespace orrery::costmodel
