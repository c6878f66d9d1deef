// SPDX-License-Identifier: Apache-2.0
#include "costmodel/collective_model.hpp"

#include <gmock/gmock.h>

#include "tests/unit/base/testing.hpp"

namespace orrery::costmodel {
namespace {

using sim::CommKind;
using ::testing::HasSubstr;

constexpr Bytes kGibibyte{1024.0 * 1024 * 1024};

CollectiveModel model_of(const std::string& cluster, std::vector<std::string> overrides = {}) {
  const topologies::Cluster loaded = topologies::load_cluster(cluster, overrides);
  return {loaded, load_profile("", loaded.gpu)};
}

// Corrections off: NCCL's own numbers.
CollectiveModel raw_model_of(const std::string& cluster) {
  const topologies::Cluster loaded = topologies::load_cluster(cluster);
  Profile profile = load_profile("", loaded.gpu);
  profile.intra_node = profile.inter_node = profile.inter_node_plugin = CollectiveParameters{};
  profile.collectives = {};
  return {loaded, profile};
}

double all_reduce_bus(const CollectiveModel& model, Bytes size, const GroupShape& group) {
  const double n = group.ranks;
  return size / model.time(CommKind::AllReduce, size, group) * (2 * (n - 1) / n) * Seconds(1) /
         Bytes(1e9);
}

TEST(GroupShapeTest, LaysRanksOutOverNodes) {
  EXPECT_EQ(make_group(8, 1, 8), (GroupShape{8, 8, 1, 1, 1}));
  EXPECT_EQ(make_group(4, 1, 8), (GroupShape{4, 4, 1, 2, 1}));
  EXPECT_EQ(make_group(16, 8, 8), (GroupShape{16, 1, 16, 8, 1}));
  EXPECT_EQ(make_group(16, 32, 8), (GroupShape{16, 1, 16, 8, 4}));
  EXPECT_EQ(make_group(16, 2, 8), (GroupShape{16, 4, 4, 2, 1, 2}));
  EXPECT_EQ(make_group(1, 1, 8), (GroupShape{1, 1, 1, 8, 1}));
}

TEST(CollectiveModelTest, OneRankOrNoBytesAreFree) {
  const CollectiveModel model = model_of("hgx-h100:2");
  EXPECT_EQ(model.time(CommKind::AllReduce, kGibibyte, make_group(1, 1, 8)), Seconds(0));
  EXPECT_EQ(model.time(CommKind::AllToAll, Bytes(0), make_group(8, 1, 8)), Seconds(0));
  EXPECT_EQ(model.send_receive(Bytes(0), false, 1), Seconds(0));
}

// Of 8 and 32 MiB what no bytes take: the latency of 14 hops, 2.2 ms; a half size of 2 MiB at
// 10 Gbit/s would be another 3.4 ms.
TEST(CollectiveModelTest, SocketsHaveNoHalfSize) {
  const CollectiveModel model = model_of("p3-2xlarge:8");
  const auto milliseconds = [&](double mebibytes) {
    const Bytes size = kGibibyte / 1024 * mebibytes;
    return 1e3 * model.time(CommKind::AllReduce, size, make_group(8, 1, 1)).value();
  };
  EXPECT_LT((4 * milliseconds(8) - milliseconds(32)) / 3, 3.0);
}

// Logs of L40S without peer-to-peer: 1.2 to 2.1 GB/s over 8 GPUs, 20 GB/s over 2 of one switch.
TEST(CollectiveModelTest, SocketsBindGpusWithoutPeerToPeer) {
  const CollectiveModel model = model_of("l40s-8-no-p2p:1");
  const auto bus = [&](int gpus) {
    return all_reduce_bus(model, kGibibyte / 2, make_group(gpus, 1, 8));
  };
  for (const int across : {5, 6, 7, 8}) {
    EXPECT_GT(bus(across), 1.2);
    EXPECT_LT(bus(across), 2.4);
  }
  EXPECT_NEAR(bus(2), 20, 1);
}

TEST(CollectiveModelTest, RawNcclPicksNvlsForLargeAndLowLatencyForSmall) {
  const CollectiveModel model = raw_model_of("hgx-h100:128");
  const GroupShape node = make_group(8, 1, 8);
  const CollectiveChoice large = model.choose(CommKind::AllReduce, 16 * kGibibyte, node);
  EXPECT_EQ(large.algorithm, Algorithm::Nvls);
  EXPECT_NEAR(all_reduce_bus(model, 16 * kGibibyte, node), 476, 1);
  const CollectiveChoice small = model.choose(CommKind::AllReduce, Bytes(1024), node);
  EXPECT_EQ(small.protocol, Protocol::LowLatency);
  EXPECT_EQ(small.channels, 1);
  EXPECT_NEAR(all_reduce_bus(model, 16 * kGibibyte, make_group(16, 1, 8)), 461, 2);
}

// Google's set-up of A3 Ultra leaves LL out between nodes: 54 us where LL takes some 30.
TEST(CollectiveModelTest, NetworksMayLeaveLowLatencyOut) {
  const auto protocol = [](const std::string& cluster, int ranks) {
    return model_of(cluster)
        .choose(CommKind::AllGather, Bytes(4096), make_group(ranks, 1, 8))
        .protocol;
  };
  EXPECT_EQ(protocol("a3-ultra:2", 16), Protocol::LowLatency128);
  EXPECT_EQ(protocol("a3-ultra:2", 8), Protocol::LowLatency);
  EXPECT_EQ(protocol("hgx-h200:2", 16), Protocol::LowLatency);
}

// LL128 needs messages in the order of 128 bytes, which EFA has on p5 and not on p4d.
TEST(CollectiveModelTest, NetworksWithoutOrderHaveNoLl128) {
  const auto has_ll128 = [](const char* name, int ranks) {
    const CollectiveModel model = raw_model_of(name);
    bool found = false;
    for (double bytes = 1024; bytes < 1e9; bytes *= 2) {
      const CollectiveChoice choice =
          model.choose(CommKind::AllReduce, Bytes(bytes), make_group(ranks, 1, 8));
      found = found || choice.protocol == Protocol::LowLatency128;
    }
    return found;
  };
  EXPECT_FALSE(has_ll128("p4d:2", 16));
  EXPECT_TRUE(has_ll128("p4d:2", 8));
  EXPECT_TRUE(has_ll128("p5:2", 16));
  EXPECT_TRUE(has_ll128("dgx-a100:2", 16));
}

TEST(CollectiveModelTest, RawA100RingReaches240) {
  const CollectiveModel model = raw_model_of("dgx-a100:1");
  EXPECT_NEAR(all_reduce_bus(model, 64 * kGibibyte, make_group(8, 1, 8)), 240, 1);
}

TEST(CollectiveModelTest, LargeMessagesTendToTheBandwidthFactor) {
  const CollectiveModel raw = raw_model_of("dgx-a100:1");
  const topologies::Cluster cluster = topologies::load_cluster("dgx-a100:1");
  Profile profile = load_profile("", cluster.gpu);
  profile.collectives = {};
  const CollectiveModel corrected(cluster, profile);
  const GroupShape node = make_group(8, 1, 8);
  const Bytes size = 4096 * kGibibyte;
  EXPECT_NEAR(
      raw.time(CommKind::AllReduce, size, node) / corrected.time(CommKind::AllReduce, size, node),
      profile.intra_node.bandwidth_factor, 0.009);
}

Seconds inter_time(const std::vector<std::string>& overrides, CommKind kind, Bytes size) {
  return model_of("hgx-h100:128", overrides).time(kind, size, make_group(128, 8, 8));
}

TEST(CollectiveModelTest, TheFabricDecidesWhatCrossesIt) {
  const Bytes size = kGibibyte;
  const auto time = [&](const std::string& builder, const std::string& dimensions, CommKind kind) {
    return inter_time({"fabric.builder=" + builder, "fabric.dimensions=" + dimensions}, kind, size);
  };
  const CommKind all = CommKind::AllToAll;
  const Seconds usual = inter_time({}, all, size);
  EXPECT_GT(time("torus", "[128]", all), 10 * usual);
  EXPECT_GT(time("torus", "[16,8]", all), 1.5 * usual);
  EXPECT_GT(time("torus", "[128]", all), time("torus", "[16,8]", all));
  EXPECT_GT(time("dragonfly", "[16,2,16]", all), 2 * usual);
  // Rings of neighbours are what a torus is good at.
  const CommKind ring = CommKind::AllGather;
  EXPECT_LT(time("torus", "[128]", ring), 1.05 * inter_time({}, ring, size));
}

TEST(CollectiveModelTest, SwitchesBeyondTheFirstTakeTheirTime) {
  for (const CommKind kind : {CommKind::AllReduce, CommKind::AllGather, CommKind::AllToAll}) {
    const Bytes size(4096);
    const Seconds fast = inter_time({"fabric.nodes_per_leaf=1"}, kind, size);
    const Seconds slow =
        inter_time({"fabric.nodes_per_leaf=1", "fabric.switch_latency=10 us"}, kind, size);
    EXPECT_GT(slow, fast + Seconds(15e-6));
    // Behind one leaf there is no second switch.
    const std::vector<std::string> leaf = {"fabric.builder=single-switch"};
    EXPECT_EQ(
        inter_time({"fabric.builder=single-switch", "fabric.switch_latency=10 us"}, kind, size),
        inter_time(leaf, kind, size));
  }
  const CollectiveModel model = model_of("hgx-h100:128", {"fabric.switch_latency=10 us"});
  EXPECT_GT(model.send_receive(Bytes(64), false, 1, 32), model.send_receive(Bytes(64), false, 1));
}

TEST(CollectiveModelTest, SlowerLinksInsideANodeTakeLonger) {
  const GroupShape node = make_group(8, 1, 8);
  const CollectiveModel usual = model_of("hgx-h100:1");
  const CollectiveModel slow = model_of("hgx-h100:1", {"node.scale_up.latency=5 us"});
  const CollectiveModel none = model_of("hgx-h100:1", {"node.scale_up.latency=1 ns"});
  for (const CommKind kind : {CommKind::AllReduce, CommKind::AllGather, CommKind::AllToAll}) {
    EXPECT_GT(slow.time(kind, Bytes(4096), node), usual.time(kind, Bytes(4096), node));
    EXPECT_LT(none.time(kind, Bytes(4096), node), usual.time(kind, Bytes(4096), node));
    EXPECT_GT(none.time(kind, Bytes(1), node), Seconds(0));
  }
  EXPECT_GT(slow.send_receive(Bytes(64), true, 1), usual.send_receive(Bytes(64), true, 1));
}

TEST(CollectiveModelTest, FasterLinksCarryFasterRings) {
  const GroupShape node = make_group(8, 1, 8);
  const CollectiveModel slow = model_of("hgx-h100:1", {"node.scale_up.bandwidth_per_gpu=100 GB/s"});
  for (const CommKind kind : {CommKind::AllReduce, CommKind::AllGather, CommKind::AllToAll}) {
    const Seconds usual = model_of("hgx-h100:1").time(kind, 4 * kGibibyte, node);
    EXPECT_NEAR(slow.time(kind, 4 * kGibibyte, node) / usual, 4.5, 0.05);
  }
}

// Large all-gathers of L40S and RTX PRO 6000 boxes (nccl-tests, ai-dynamo/aiconfigurator).
TEST(CollectiveModelTest, PcieBoxesTellSocketsApart) {
  const auto bus = [](const CollectiveModel& model, int ranks, int stride) {
    const Seconds time = model.time(CommKind::AllGather, kGibibyte, make_group(ranks, stride, 8));
    return kGibibyte.value() / time.value() / 1e9 * (ranks - 1) / ranks;
  };
  const CollectiveModel l40s = model_of("l40s-8-no-p2p:1");
  EXPECT_NEAR(bus(l40s, 2, 1), 20, 1);
  EXPECT_NEAR(bus(l40s, 4, 1), 5.2, 0.5);
  // No gather of 8 was measured: as a reduce-scatter, 2.2 and 1.7 GB/s of the largest two sizes.
  EXPECT_NEAR(bus(l40s, 8, 1), 1.9, 0.3);
  // Spread over both sockets, a pair is as slow as all.
  EXPECT_NEAR(bus(l40s, 2, 4), 2.1, 0.1);
  const CollectiveModel rtx = model_of("rtx-pro-6000-8:1");
  EXPECT_NEAR(bus(rtx, 2, 1), 36, 2);
  EXPECT_NEAR(bus(rtx, 4, 1), 24.5, 1.5);
  EXPECT_NEAR(bus(rtx, 8, 1), 23, 1);
}

TEST(CollectiveModelTest, RemembersTheRightShapes) {
  const CollectiveModel asked = model_of("meta-24k-roce");
  const CollectiveModel fresh = asked;
  for (int turn = 0; turn < 2; ++turn) {
    for (int stride = 1; stride <= 64; ++stride) {
      const GroupShape group = make_group(8, 8 * stride, 8);
      for (const CommKind kind : {CommKind::AllGather, CommKind::AllToAll}) {
        EXPECT_EQ(asked.time(kind, Bytes(1e8), group),
                  CollectiveModel(fresh).time(kind, Bytes(1e8), group));
      }
    }
  }
}

TEST(CollectiveModelTest, GroupsOfANodeShareItsNics) {
  const CollectiveModel model = raw_model_of("p4d:8");  // 4 NICs for 8 GPUs
  GroupShape alone = make_group(8, 8, 8);
  alone.groups_per_node = 1;
  GroupShape shared = alone;
  shared.groups_per_node = 8;
  const double ratio = model.time(CommKind::AllGather, 16 * kGibibyte, shared) /
                       model.time(CommKind::AllGather, 16 * kGibibyte, alone);
  EXPECT_NEAR(ratio, 2, 0.02);
}

TEST(CollectiveModelTest, OversubscriptionSlowsOnlyGroupsThatLeaveALeaf) {
  const std::vector<std::string> narrow = {"fabric.oversubscription=4", "fabric.nodes_per_leaf=4"};
  const CollectiveModel full = model_of("hgx-h100:64", {"fabric.nodes_per_leaf=4"});
  const CollectiveModel cut = model_of("hgx-h100:64", narrow);
  const auto slowdown = [&](CommKind kind, const GroupShape& group) {
    return cut.time(kind, kGibibyte, group) / full.time(kind, kGibibyte, group);
  };
  EXPECT_DOUBLE_EQ(slowdown(CommKind::AllGather, make_group(32, 1, 8)), 1);  // 4 nodes, one leaf
  EXPECT_GT(slowdown(CommKind::AllGather, make_group(8, 32, 8)), 3);         // every hop leaves
  EXPECT_GT(slowdown(CommKind::AllToAll, make_group(64, 1, 8)), 1.5);
}

TEST(CollectiveModelTest, AnNvl72RackIsOneNode) {
  const CollectiveModel model = model_of("gb200-nvl72:2");
  const GroupShape rack = make_group(72, 1, 72);
  EXPECT_EQ(rack.nodes, 1);
  EXPECT_EQ(model.choose(CommKind::AllReduce, 16 * kGibibyte, rack).algorithm, Algorithm::Nvls);
}

TEST(CollectiveModelTest, PluginLatencyCounts) {
  const CollectiveModel with = model_of("p5:4");
  const CollectiveModel without = model_of("p5:4", {"node.scale_out.plugin_latency=\"1 us\""});
  EXPECT_GT(with.time(CommKind::AllReduce, Bytes(1024), make_group(32, 1, 8)),
            without.time(CommKind::AllReduce, Bytes(1024), make_group(32, 1, 8)));
}

TEST(CollectiveModelTest, SendReceiveIsLimitedByPeerConnectionAndSendersOfANic) {
  const CollectiveModel model = model_of("hgx-b200:2");
  const double rate = kGibibyte / model.send_receive(kGibibyte, false, 1) / BytesPerSecond(1e9);
  EXPECT_NEAR(rate, 19.8, 0.1);
  // Eight GPUs have a NIC each.
  EXPECT_EQ(model.send_receive(kGibibyte, false, 8), model.send_receive(kGibibyte, false, 1));
  EXPECT_GT(model.send_receive(kGibibyte, false, 64), 3 * model.send_receive(kGibibyte, false, 1));
  // Of five senders on two NICs three share one.
  const CollectiveModel two = model_of("hgx-h100:2", {"node.scale_out.nics=2"});
  EXPECT_EQ(two.send_receive(kGibibyte, false, 6), two.send_receive(kGibibyte, false, 5));
  EXPECT_GT(two.send_receive(kGibibyte, false, 5), two.send_receive(kGibibyte, false, 4));
  EXPECT_LT(model.send_receive(kGibibyte, true, 1), 0.1 * model.send_receive(kGibibyte, false, 1));
}

TEST(CollectiveModelTest, NodesWithoutNetworkAreAnError) {
  topologies::Cluster cluster = topologies::load_cluster("hgx-h100:2");
  cluster.node.scale_out.nics = 0;
  const CollectiveModel model(cluster, load_profile("", cluster.gpu));
  EXPECT_NO_THROW(model.time(CommKind::AllReduce, kGibibyte, make_group(8, 1, 8)));
  EXPECT_THAT(testing::message_of(
                  [&] { model.time(CommKind::AllReduce, kGibibyte, make_group(16, 1, 8)); }),
              HasSubstr("no network"));
}

// Five GPUs of a cube mesh keep to NVLink, through a third one; of RCCL no such path is known.
TEST(CollectiveModelTest, MeshesWithoutARingGoThroughThirdGpus) {
  const CollectiveModel mesh = model_of("dgx-1v");
  const auto bus = [&](const CollectiveModel& model, int gpus) {
    return all_reduce_bus(model, kGibibyte, make_group(gpus, 1, model.cluster().node.gpus));
  };
  EXPECT_NEAR(bus(mesh, 5) / bus(mesh, 3), 1, 0.1);  // two channels each
  const CollectiveModel amd = model_of("dgx-1v", {"gpu.vendor=AMD"});
  EXPECT_LT(bus(amd, 5), 0.5 * bus(mesh, 5));
}

// GPUs that a run leaves idle do not make the others' rings faster or slower.
TEST(CollectiveModelTest, PartsOfANodeHaveTheRingsOfTheWhole) {
  for (const char* node :
       {"dgx-1v", "mi300x-8", "l40s-8-no-p2p", "h100-pcie-8", "hgx-h100", "dgx-2"}) {
    const CollectiveModel whole = model_of(node);
    for (const int gpus : {2, 4}) {
      const CollectiveModel part = model_of(node, {"node.gpus=" + std::to_string(gpus)});
      const int all = whole.cluster().node.gpus;
      EXPECT_EQ(part.time(CommKind::AllReduce, kGibibyte, make_group(gpus, 1, gpus)),
                whole.time(CommKind::AllReduce, kGibibyte, make_group(gpus, 1, all)))
          << node << " " << gpus;
    }
  }
  const std::string ring = "node.scale_up.nccl_bandwidth=";
  const auto bus = [&](const char* rate) {
    return all_reduce_bus(model_of("dgx-1v", {"node.gpus=4", ring + rate}), kGibibyte,
                          make_group(4, 1, 4));
  };
  EXPECT_NEAR(bus("60 GB/s") / bus("30 GB/s"), 2, 0.1);  // the part's own, where it is stated
}

}  // namespace
}  // namespace orrery::costmodel
