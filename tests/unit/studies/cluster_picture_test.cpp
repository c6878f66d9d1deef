// SPDX-License-Identifier: Apache-2.0
#include "studies/cluster_picture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/unit/studies/pictures.hpp"

namespace orrery::studies {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kGpuColour = "fill=\"#f6e0e3\"";

std::string cluster_picture(const std::string& name,
                            const std::vector<std::string>& settings = {}) {
  return cluster_svg(name, {topologies::load_cluster(name, settings)});
}

TEST(ClusterPictureTest, LevelsSayWhatTheyCarry) {
  const std::string svg = cluster_picture("hgx-h100:8", {"fabric.oversubscription=2"});
  EXPECT_THAT(svg, AllOf(HasSubstr("rail-optimised, oversubscription 2"),
                         HasSubstr("8 x ib-ndr, 50 GB/s each"),
                         HasSubstr("nvswitch, nvlink4, 450 GB/s per GPU"),
                         HasSubstr("63 GB/s to each GPU"), HasSubstr("3.35 TB/s")));
  EXPECT_THAT(svg, AllOf(HasSubstr(">node 1<"), HasSubstr(">...<"), HasSubstr(">node 7<")));
  EXPECT_EQ(count_in(svg, kGpuColour), 8U);
}

TEST(ClusterPictureTest, SmallClustersHaveNoMoreThanIsThere) {
  EXPECT_THAT(cluster_picture("hgx-h100:1"),
              AllOf(Not(HasSubstr("oversubscription")), Not(HasSubstr(">node 1<"))));
  EXPECT_THAT(cluster_picture("hgx-h100:2"), AllOf(HasSubstr(">node 1<"), Not(HasSubstr(">...<"))));
}

TEST(ClusterPictureTest, LargeNodesAreCutShort) {
  const std::string svg = cluster_picture("gb200-nvl72:1");
  EXPECT_EQ(count_in(svg, kGpuColour), 16U);
  EXPECT_THAT(svg, AllOf(HasSubstr(">...<"), HasSubstr("72 GPUs")));
}

TEST(ClusterPictureTest, PoolsAreNamedAndJoined) {
  const std::string svg = cluster_svg(
      "both",
      {topologies::load_cluster("hgx-h100:2", {}), topologies::load_cluster("dgx-a100:1", {})},
      {"between pools: 200 GB/s", "one & all"});
  EXPECT_THAT(svg, AllOf(HasSubstr("hgx-h100:2: 2 nodes, 16 GPUs"),
                         HasSubstr("dgx-a100:1: 1 node, 8 GPUs")));
  EXPECT_THAT(svg, AllOf(HasSubstr(">between pools: 200 GB/s<"), HasSubstr(">one &amp; all<")));
  EXPECT_EQ(count_in(svg, "H12V"), 2U);  // a line to every pool
  EXPECT_EQ(count_in(cluster_picture("hgx-h100:2"), "H12V"), 0U);
}

}  // namespace
}  // namespace orrery::studies
