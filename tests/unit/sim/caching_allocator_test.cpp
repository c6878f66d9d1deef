// SPDX-License-Identifier: Apache-2.0
// Sizes and reuse as c10/cuda/CUDACachingAllocator.cpp of pytorch/pytorch has them.
#include "sim/caching_allocator.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "tests/unit/sim/sizes.hpp"

namespace orrery::sim {
namespace {

TEST(CachingAllocator, RoundsToBlocksAndSegments) {
  CachingAllocator allocator;
  allocator.allocate(1);
  EXPECT_EQ(allocator.allocated(), 512);
  EXPECT_EQ(allocator.reserved(), 2 * kMiB);
  allocator.allocate(3 * kMiB);  // a segment of 20 MiB, split
  EXPECT_EQ(allocator.allocated(), 512 + 3 * kMiB);
  EXPECT_EQ(allocator.reserved(), 22 * kMiB);
  allocator.allocate(10 * kMiB);  // fits the rest of it
  EXPECT_EQ(allocator.reserved(), 22 * kMiB);
  allocator.allocate(11 * kMiB);  // rounded up to 2 MiB; 1 MiB left is not split off
  EXPECT_EQ(allocator.reserved(), 34 * kMiB);
  EXPECT_EQ(allocator.allocated(), 512 + 13 * kMiB + 12 * kMiB);
}

TEST(CachingAllocator, TakesTheBestFitAndMergesNeighbours) {
  CachingAllocator allocator;
  const auto large = allocator.allocate(100 * kMiB);
  const auto medium = allocator.allocate(40 * kMiB);
  allocator.release(large);
  allocator.release(medium);
  const auto part = allocator.allocate(30 * kMiB);  // from the 40 MiB block
  const auto whole = allocator.allocate(100 * kMiB);
  EXPECT_EQ(allocator.reserved(), 140 * kMiB);
  allocator.release(whole);
  const auto a = allocator.allocate(50 * kMiB);
  const auto b = allocator.allocate(50 * kMiB);
  allocator.release(a);
  allocator.release(b);
  allocator.allocate(100 * kMiB);  // the halves have merged
  EXPECT_EQ(allocator.reserved(), 140 * kMiB);
  EXPECT_EQ(allocator.peak_allocated(), 130 * kMiB + 10 * kMiB);
  allocator.release(part);
}

TEST(CachingAllocator, KeepsStreamsApart) {
  CachingAllocator allocator;
  allocator.release(allocator.allocate(64 * kMiB, 0));
  allocator.allocate(64 * kMiB, 1);
  EXPECT_EQ(allocator.reserved(), 128 * kMiB);
}

TEST(CachingAllocator, GivesCachedSegmentsBackWhenTheDeviceIsFull) {
  CachingAllocator allocator({.capacity = 100 * kMiB});
  allocator.release(allocator.allocate(60 * kMiB));
  allocator.allocate(80 * kMiB);
  EXPECT_EQ(allocator.reserved(), 80 * kMiB);
  EXPECT_FALSE(allocator.over_capacity());
  allocator.allocate(30 * kMiB);
  EXPECT_TRUE(allocator.over_capacity());
}

TEST(CachingAllocator, ExpandableSegmentsGrowAtTheirEnd) {
  CachingAllocator allocator({.expandable_segments = true});
  allocator.release(allocator.allocate(60 * kMiB));
  allocator.allocate(100 * kMiB);  // 60 MiB reused, 40 mapped
  EXPECT_EQ(allocator.reserved(), 100 * kMiB);
  CachingAllocator fixed;
  fixed.release(fixed.allocate(60 * kMiB));
  fixed.allocate(100 * kMiB);
  EXPECT_EQ(fixed.reserved(), 160 * kMiB);
}

// So many that they are in several runs, in one segment each of a size of its own.
TEST(CachingAllocator, FindsTheBestFitAmongManyFreeBlocks) {
  constexpr int kBlocks = 1000;
  constexpr int kStep = 617;  // every number once, in no order
  CachingAllocator allocator;
  std::vector<CachingAllocator::BlockId> blocks;
  for (int index = 0; index < kBlocks; ++index) {
    blocks.push_back(allocator.allocate((10 + 2 * (index * kStep % kBlocks)) * kMiB));
  }
  const std::int64_t reserved = allocator.reserved();
  for (const auto block : blocks) {
    allocator.release(block);
  }
  for (int index = 0; index < kBlocks; ++index) {  // each fits one of them alone, and leaves none
    const std::int64_t size = (10 + 2 * (index * 389 % kBlocks)) * kMiB;
    const std::int64_t before = allocator.allocated();
    allocator.allocate(size);
    ASSERT_EQ(allocator.allocated() - before, size) << index;
  }
  EXPECT_EQ(allocator.allocated(), reserved);
  EXPECT_EQ(allocator.reserved(), reserved);
}

}  // namespace
}  // namespace orrery::sim
