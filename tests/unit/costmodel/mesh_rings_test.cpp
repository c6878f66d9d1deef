// SPDX-License-Identifier: Apache-2.0
#include "costmodel/mesh_rings.hpp"

#include <gtest/gtest.h>

namespace orrery::costmodel {
namespace {

// DGX-1V hybrid cube mesh.
const std::vector<std::array<int, 3>> kCubeMesh = {
    {0, 1, 1}, {0, 2, 1}, {0, 3, 2}, {0, 4, 2}, {1, 2, 2}, {1, 3, 1}, {1, 5, 2}, {2, 3, 2},
    {2, 6, 1}, {3, 7, 1}, {4, 5, 1}, {4, 6, 1}, {4, 7, 2}, {5, 6, 2}, {5, 7, 1}, {6, 7, 2}};

TEST(MeshRingsTest, CubeMeshSubsetsMatchTheMeasuredBusBandwidths) {
  // Measured all-reduce bus bandwidth at about 22 GB/s a channel: 23, 45, 85, -, 46, 87, 129 GB/s.
  EXPECT_EQ(mesh_ring_channels(kCubeMesh, 2), 1);
  EXPECT_EQ(mesh_ring_channels(kCubeMesh, 3), 2);
  EXPECT_EQ(mesh_ring_channels(kCubeMesh, 4), 4);
  EXPECT_EQ(mesh_ring_channels(kCubeMesh, 5), 0);
  EXPECT_EQ(mesh_ring_channels(kCubeMesh, 6), 2);
  EXPECT_EQ(mesh_ring_channels(kCubeMesh, 7), 4);
  EXPECT_EQ(mesh_ring_channels(kCubeMesh, 8), 6);
}

// Five GPUs have no ring of direct links, as GPU 4 has a neighbour but GPU 0: the way goes through
// that one (PATH_NVB), on both of its links. Where there is a ring, none goes through third GPUs.
TEST(MeshRingsTest, RingsMayGoThroughAThirdGpu) {
  EXPECT_EQ(mesh_ring_channels(kCubeMesh, 5, true), 2);
  for (const int ranks : {2, 3, 4, 6, 7, 8}) {
    EXPECT_EQ(mesh_ring_channels(kCubeMesh, ranks, true), mesh_ring_channels(kCubeMesh, ranks));
  }
  EXPECT_EQ(mesh_ring_channels({{0, 1, 1}, {1, 2, 1}}, 3), 0);
  EXPECT_EQ(mesh_ring_channels({{0, 1, 1}, {1, 2, 1}}, 3, true), 1);  // there and back
  EXPECT_EQ(mesh_ring_channels({{0, 1, 1}, {2, 3, 1}}, 4, true), 0);
}

TEST(MeshRingsTest, OddInputHasNoRings) {
  EXPECT_EQ(mesh_ring_channels({}, 4), 0);
  EXPECT_EQ(mesh_ring_channels({}, 4, true), 0);
  EXPECT_EQ(mesh_ring_channels(kCubeMesh, 1), 0);
  EXPECT_EQ(mesh_ring_channels(kCubeMesh, 9), 0);
  EXPECT_EQ(mesh_ring_channels({{0, 0, 3}, {-1, 2, 3}, {0, 99, 3}}, 3), 0);
}

}  // namespace
}  // namespace orrery::costmodel
