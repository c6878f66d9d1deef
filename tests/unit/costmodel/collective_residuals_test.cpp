// SPDX-License-Identifier: Apache-2.0
#include "costmodel/collective_residuals.hpp"

#include <gtest/gtest.h>

#include <array>

namespace orrery::costmodel {
namespace {

using sim::CommKind;

ResidualCurve curve(int ranks, int nodes, std::vector<std::int16_t> permille, int nccl = 229) {
  const FabricClass fabric = nodes == 1 ? FabricClass::Node : FabricClass::InfiniBand;
  return {fabric, CommKind::AllReduce, nccl, ranks, nodes, 20, std::move(permille)};
}

double value(const CollectiveResiduals& residuals, double log2_bytes, int ranks, int nodes = 1,
             int nccl = 0, CommKind kind = CommKind::AllReduce) {
  const FabricClass fabric = nodes == 1 ? FabricClass::Node : FabricClass::InfiniBand;
  std::array<double, 1> out{};
  residuals.fill({fabric, kind, nccl, ranks, nodes}, log2_bytes, 1, out);
  return out[0];
}

TEST(CollectiveResidualsTest, InterpolatesInBytesAndRanks) {
  const CollectiveResiduals residuals({curve(2, 1, {100, 200}), curve(8, 1, {300, 400})});
  EXPECT_DOUBLE_EQ(value(residuals, 20, 2), 0.1);
  EXPECT_DOUBLE_EQ(value(residuals, 20.25, 2), 0.125);
  EXPECT_DOUBLE_EQ(value(residuals, 20.5, 4), 0.25);
  EXPECT_DOUBLE_EQ(value(residuals, 21, 8), 0.4);
}

TEST(CollectiveResidualsTest, FadesBeyondWhatWasMeasured) {
  const CollectiveResiduals residuals({curve(8, 1, {300, 400})});
  EXPECT_DOUBLE_EQ(value(residuals, 21 + kFadeOctaves / 2, 8), 0.2);
  EXPECT_EQ(value(residuals, 21 + kFadeOctaves, 8), 0);
  EXPECT_DOUBLE_EQ(value(residuals, 2, 8), 0.3);
  // The nearest layout counts, less the further away it is.
  const double near = value(residuals, 21, 4);
  const double far = value(residuals, 21, 2);
  EXPECT_LT(near, 0.4);
  EXPECT_LT(far, near);
  EXPECT_GT(far, 0.2);
}

TEST(CollectiveResidualsTest, TakesTheNearestVersionAndByDefaultTheNewest) {
  const CollectiveResiduals residuals({curve(8, 1, {100}, 223), curve(8, 1, {300}, 229)});
  EXPECT_DOUBLE_EQ(value(residuals, 20, 8), 0.3);
  EXPECT_DOUBLE_EQ(value(residuals, 20, 8, 1, 221), 0.1);
  EXPECT_DOUBLE_EQ(value(residuals, 20, 8, 1, 228), 0.3);
}

TEST(CollectiveResidualsTest, AcrossNodesTheNearestRanksOfANodeCount) {
  const CollectiveResiduals residuals(
      {curve(8, 2, {100}), curve(8, 8, {300}), curve(1, 2, {-200})});
  EXPECT_DOUBLE_EQ(value(residuals, 20, 8, 4), 0.2);
  EXPECT_DOUBLE_EQ(value(residuals, 20, 1, 2), -0.2);
  EXPECT_LT(value(residuals, 20, 4, 2), 0.1);
  EXPECT_GT(value(residuals, 20, 4, 2), 0);
}

TEST(CollectiveResidualsTest, OtherCollectivesAndFabricsKnowNothing) {
  const CollectiveResiduals residuals({curve(8, 1, {300})});
  EXPECT_EQ(value(residuals, 20, 8, 1, 0, CommKind::AllGather), 0);
  EXPECT_EQ(value(residuals, 20, 8, 2), 0);
  EXPECT_EQ(value({}, 20, 8), 0);
}

TEST(CollectiveResidualsTest, NetworksFallIntoTheirClasses) {
  const auto of = [](const char* cluster) {
    return fabric_class(topologies::load_cluster(cluster).node.scale_out);
  };
  EXPECT_EQ(of("hgx-h100:2"), FabricClass::InfiniBand);
  EXPECT_EQ(of("p5:2"), FabricClass::Efa);
  EXPECT_EQ(of("a3-mega:2"), FabricClass::Tcp);
  EXPECT_EQ(of("a3-ultra:2"), FabricClass::Roce);
  EXPECT_EQ(of("mi250x-8:2"), FabricClass::Slingshot);
  topologies::ScaleOut sharp = topologies::load_cluster("hgx-h100:2").node.scale_out;
  sharp.in_network_reduction = true;
  EXPECT_EQ(fabric_class(sharp), FabricClass::Sharp);
}

}  // namespace
}  // namespace orrery::costmodel
