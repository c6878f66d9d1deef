// SPDX-License-Identifier: Apache-2.0
// Collective times are monotone in bytes and in hardware, subadditive in closed form,
// bounded by the slowest link, and the choice is the minimum.
#include "costmodel/collective_model.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <array>
#include <map>
#include <utility>
#include <vector>

namespace orrery::costmodel {
namespace {

using sim::CommKind;

constexpr double kRounding = 1 + 1e-9;
const std::array<const char*, 10> kClusters = {
    "dgx-1v:16",   "dgx-a100:64",   "p4d:16",   "hgx-h100:64", "p5:16",
    "hgx-b200:16", "gb200-nvl72:4", "l40s-8:4", "mi300x-8:8",  "dgx-2:4"};

const topologies::Cluster& any_cluster() {
  static std::map<std::string, topologies::Cluster> loaded;
  const std::string name = kClusters[*rc::gen::inRange<std::size_t>(0, kClusters.size())];
  auto found = loaded.find(name);
  if (found == loaded.end()) {
    found = loaded.emplace(name, topologies::load_cluster(name)).first;
  }
  return found->second;
}

CollectiveModel model_of(const topologies::Cluster& cluster) {
  return {cluster, load_profile("", cluster.gpu)};
}

CollectiveModel model_of(const topologies::Cluster& cluster, const CollectiveFits& fits) {
  Profile profile = load_profile("", cluster.gpu);
  profile.collectives = fits;
  return {cluster, profile};
}

// Residuals of every sign and size for every collective, so that the laws hold whatever was fitted.
CollectiveFits any_fits() {
  std::vector<ResidualCurve> curves;
  for (const CommKind kind : {CommKind::AllReduce, CommKind::AllGather, CommKind::ReduceScatter,
                              CommKind::AllToAll, CommKind::Broadcast}) {
    for (int fabric = 0; fabric < kNumFabricClasses; ++fabric) {
      const auto place = static_cast<FabricClass>(fabric);
      ResidualCurve curve{place, kind, 229, 8, inside_node(place) ? 1 : 2, 10, {}};
      const int count = *rc::gen::inRange(1, 25);
      for (int i = 0; i < count; ++i) {
        curve.permille.push_back(static_cast<std::int16_t>(*rc::gen::inRange(-694, 695)));
      }
      curves.push_back(std::move(curve));
    }
  }
  CollectiveFits fits;
  fits.residuals = CollectiveResiduals(std::move(curves));
  return fits;
}

CommKind any_kind() {
  return *rc::gen::element(CommKind::AllReduce, CommKind::AllGather, CommKind::ReduceScatter,
                           CommKind::AllToAll, CommKind::Broadcast);
}

Bytes any_size() {
  const int bits = *rc::gen::inRange(0, 36);
  const double base = static_cast<double>(std::int64_t{1} << bits);
  return Bytes(base + *rc::gen::inRange(0, 1000) / 1000.0 * base);
}

GroupShape any_group(const topologies::Cluster& cluster) {
  const int gpus = cluster.node.gpus;
  const int stride = *rc::gen::element(1, 1, 2, gpus, 2 * gpus);
  const int most = std::max(2, cluster.num_gpus() / stride);
  return make_group(*rc::gen::inRange(2, most + 1), stride, gpus);
}

TEST(CollectiveModelProperty, TimeGrowsWithBytes) {
  EXPECT_TRUE(rc::check([] {
    const topologies::Cluster& cluster = any_cluster();
    const CollectiveModel model = model_of(cluster, any_fits());
    const GroupShape group = any_group(cluster);
    const CommKind kind = any_kind();
    Bytes size(64);
    Seconds last(0);
    const double step = *rc::gen::element(1.01, 1.1, 1.37, 2.0);
    while (size < Bytes(1e11)) {
      const Seconds time = model.time(kind, size, group);
      RC_ASSERT(time.value() * kRounding >= last.value());
      last = time;
      size *= step;
    }
  }));
}

TEST(CollectiveModelProperty, SendReceiveGrowsWithBytesAndSenders) {
  EXPECT_TRUE(rc::check([] {
    const CollectiveModel model = model_of(any_cluster());
    const Bytes size = any_size();
    const Bytes more = size + any_size();
    const bool same = *rc::gen::arbitrary<bool>();
    const int senders = *rc::gen::inRange(1, 65);
    RC_ASSERT(model.send_receive(more, same, senders) >= model.send_receive(size, same, senders));
    RC_ASSERT(model.send_receive(size, false, senders + 1) >=
              model.send_receive(size, false, senders));
    RC_ASSERT(model.send_receive(more, same, senders) <=
              model.send_receive(size, same, senders) +
                  kRounding * model.send_receive(more - size, same, senders));
  }));
}

topologies::Cluster faster(topologies::Cluster cluster) {
  const auto factor = [] { return *rc::gen::element(1.0, 1.01, 1.9, 10.0); };
  topologies::ScaleUp& up = cluster.node.scale_up;
  const double inside = factor();
  up.bandwidth_per_gpu *= inside;
  up.nccl_bandwidth *= inside;
  cluster.node.scale_out.nic_bandwidth *= factor();
  cluster.node.scale_out.latency *= *rc::gen::element(1.0, 0.5, 0.0);
  cluster.fabric.oversubscription = 1;
  return cluster;
}

TEST(CollectiveModelProperty, FasterLinksAreNeverSlower) {
  EXPECT_TRUE(rc::check([] {
    const topologies::Cluster& cluster = any_cluster();
    const CollectiveFits fits = any_fits();
    const CollectiveModel model = model_of(cluster, fits);
    const CollectiveModel better = model_of(faster(cluster), fits);
    const GroupShape group = any_group(cluster);
    const CommKind kind = any_kind();
    const Bytes size = any_size();
    RC_ASSERT(better.time(kind, size, group).value() <=
              model.time(kind, size, group).value() * kRounding);
    const bool same = *rc::gen::arbitrary<bool>();
    RC_ASSERT(better.send_receive(size, same, 2).value() <=
              model.send_receive(size, same, 2).value() * kRounding);
  }));
}

TEST(CollectiveModelProperty, SharingNicsIsNeverFaster) {
  EXPECT_TRUE(rc::check([] {
    const topologies::Cluster& cluster = any_cluster();
    const CollectiveModel model = model_of(cluster, any_fits());
    GroupShape group = any_group(cluster);
    const CommKind kind = any_kind();
    const Bytes size = any_size();
    const Seconds time = model.time(kind, size, group);
    group.groups_per_node += *rc::gen::inRange(0, 8);
    RC_ASSERT(model.time(kind, size, group).value() * kRounding >= time.value());
  }));
}

// Ring collectives without in-switch reduction move n - 1 of n parts over the slowest link.
TEST(CollectiveModelProperty, BusBandwidthStaysBelowTheLinks) {
  EXPECT_TRUE(rc::check([] {
    const topologies::Cluster& cluster = any_cluster();
    const CollectiveModel model = model_of(cluster, any_fits());
    const GroupShape group = any_group(cluster);
    const Bytes size = any_size();
    const double n = group.ranks;
    const Seconds time = model.time(CommKind::AllGather, size, group);
    const BytesPerSecond bus = size * ((n - 1) / n) / time;
    const topologies::ScaleUp& up = cluster.node.scale_up;
    if (group.ranks_per_node > 1) {
      RC_ASSERT(bus <= kRounding * std::max(up.bandwidth_per_gpu, up.nccl_bandwidth));
    }
    if (group.nodes > 1) {
      const topologies::ScaleOut& out = cluster.node.scale_out;
      RC_ASSERT(bus <= kRounding * out.nic_bandwidth * static_cast<double>(out.nics));
    }
  }));
}

TEST(CollectiveModelProperty, GatherAndScatterAreSubadditive) {
  EXPECT_TRUE(rc::check([] {
    const topologies::Cluster& cluster = any_cluster();
    const CollectiveModel model = model_of(cluster, any_fits());
    const GroupShape group = any_group(cluster);
    const CommKind kind = *rc::gen::element(CommKind::AllGather, CommKind::ReduceScatter,
                                            CommKind::AllToAll, CommKind::Broadcast);
    const Bytes a = any_size();
    const Bytes b = any_size();
    RC_ASSERT(model.time(kind, a + b, group).value() <=
              kRounding * (model.time(kind, a, group) + model.time(kind, b, group)).value());
  }));
}

// NCCL's formula does not tell them apart, but for the chunks of PAT, which are longer in scatters;
// measured residuals do, by at most their clamp.
TEST(CollectiveModelProperty, GatherAndScatterAreTheSameByFormula) {
  EXPECT_TRUE(rc::check([] {
    const topologies::Cluster& cluster = any_cluster();
    Profile profile = load_profile("", cluster.gpu);
    profile.collectives = {};
    const CollectiveModel model(cluster, profile);
    const GroupShape group = any_group(cluster);
    const Bytes size = any_size();
    const Seconds gather = model.time(CommKind::AllGather, size, group);
    const Seconds scatter = model.time(CommKind::ReduceScatter, size, group);
    RC_ASSERT(gather.value() <= scatter.value() * kRounding);
    const CollectiveChoice gathered = model.formula(CommKind::AllGather, size, group);
    if (gathered.algorithm != Algorithm::Pat) {
      const Seconds scattered = model.formula(CommKind::ReduceScatter, size, group).time;
      RC_ASSERT(scattered.value() <= gathered.time.value() * kRounding);
    }
  }));
}

}  // namespace
}  // namespace orrery::costmodel
