// SPDX-License-Identifier: Apache-2.0
// Every profile file and every GPU and node of the catalogue keep these promises.
#include <gtest/gtest.h>

#include <algorithm>

#include "costmodel/collective_model.hpp"
#include "costmodel/device_model.hpp"

namespace orrery::costmodel {
namespace {

std::string identifier(std::string name) {
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == '-' || c == '.'; }, '_');
  return name;
}

class ProfileContract : public ::testing::TestWithParam<std::string> {};

TEST_P(ProfileContract, IsCompleteAndSourced) {
  topologies::Gpu gpu;
  gpu.name = "any";
  const Profile profile = load_profile(GetParam(), gpu);
  EXPECT_EQ(profile.name, GetParam());
  EXPECT_FALSE(profile.source.empty());
  EXPECT_GE(profile.sources.size(), 14U);
  for (const ProfileSource& source : profile.sources) {
    EXPECT_GT(source.text.size(), 10U) << source.section;
  }
  EXPECT_GT(profile.kernel_launch, Seconds(0));
  EXPECT_GT(profile.gemm[static_cast<std::size_t>(DType::Fp16)].launch, Seconds(1e-6));
  EXPECT_GT(profile.collective_sms, 0);
  EXPECT_GT(profile.spread.gemm, 0);
  EXPECT_GT(profile.spread.attention, 0);
  EXPECT_GT(profile.spread.memory_bound, 0);
  EXPECT_GT(profile.spread.intra_node_collective, 0);
  EXPECT_GT(profile.spread.inter_node_collective, 0);
}

TEST_P(ProfileContract, ReadsBackEqual) {
  topologies::Gpu gpu;
  const Profile profile = load_profile(GetParam(), gpu);
  EXPECT_EQ(read_profile(parse_json(to_json(profile).dump(), "dump"), "dump", gpu), profile);
}

INSTANTIATE_TEST_SUITE_P(Profiles, ProfileContract, ::testing::ValuesIn(profile_names()),
                         [](const auto& test) { return identifier(test.param); });

class GpuContract : public ::testing::TestWithParam<std::string> {};

TEST_P(GpuContract, HasAProfileAndFiniteTimes) {
  const topologies::Gpu gpu = topologies::load_gpu(GetParam());
  const DeviceModel model(gpu, load_profile("", gpu));
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    if (gpu.peak_of(dtype).value() <= 0) {
      continue;
    }
    const Seconds gemm = model.gemm({.m = 4096, .n = 4096, .k = 4096, .dtype = dtype});
    EXPECT_GT(gemm, Seconds(0));
    EXPECT_LT(gemm, Seconds(1));
  }
  EXPECT_GT(model.memory_bound(Bytes(1e9), MemoryKernel::Norm), Bytes(1e9) / gpu.hbm_bandwidth);
  EXPECT_GT(model.overlap_speed_fraction(), 0);
  EXPECT_LE(model.overlap_speed_fraction(), 1);
}

INSTANTIATE_TEST_SUITE_P(Gpus, GpuContract, ::testing::ValuesIn(topologies::gpu_names()),
                         [](const auto& test) { return identifier(test.param); });

class NodeContract : public ::testing::TestWithParam<std::string> {};

TEST_P(NodeContract, CollectivesOfEveryGroupSizeAreFinite) {
  const topologies::Cluster cluster = topologies::load_cluster(GetParam() + ":4");
  const CollectiveModel model(cluster, load_profile("", cluster.gpu));
  using sim::CommKind;
  for (int ranks = 2; ranks <= 4 * cluster.node.gpus; ++ranks) {
    const GroupShape group = make_group(ranks, 1, cluster.node.gpus);
    if (group.nodes > 1 && cluster.node.scale_out.nics == 0) {
      continue;
    }
    for (const CommKind kind : {CommKind::AllReduce, CommKind::AllGather, CommKind::ReduceScatter,
                                CommKind::AllToAll, CommKind::Broadcast}) {
      const Seconds time = model.time(kind, Bytes(1 << 20), group);
      EXPECT_GT(time, Seconds(1e-6)) << ranks;
      EXPECT_LT(time, Seconds(1)) << ranks;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Nodes, NodeContract, ::testing::ValuesIn(topologies::node_names()),
                         [](const auto& test) { return identifier(test.param); });

}  // namespace
}  // namespace orrery::costmodel
