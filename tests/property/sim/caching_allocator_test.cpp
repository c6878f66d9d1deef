// SPDX-License-Identifier: Apache-2.0
#include "sim/caching_allocator.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <vector>

namespace orrery::sim {
namespace {

// Whatever the order of requests: reserved covers allocated, and all memory comes back.
TEST(CachingAllocator, NeitherLosesNorInventsMemory) {
  EXPECT_TRUE(rc::check([](std::vector<std::uint32_t> sizes, bool expandable) {
    CachingAllocator allocator({.expandable_segments = expandable});
    std::vector<CachingAllocator::BlockId> live;
    for (const std::uint32_t size : sizes) {
      if (size % 3 == 0 && !live.empty()) {
        const std::size_t victim = size % live.size();
        allocator.release(live[victim]);
        live.erase(live.begin() + static_cast<std::ptrdiff_t>(victim));
      } else {
        live.push_back(allocator.allocate(size % (64U << 20U), static_cast<int>(size % 2)));
      }
      RC_ASSERT(allocator.allocated() <= allocator.reserved());
    }
    for (const auto block : live) {
      allocator.release(block);
    }
    RC_ASSERT(allocator.allocated() == 0);
    allocator.empty_cache();
    RC_ASSERT(allocator.reserved() == 0);
  }));
}

}  // namespace
}  // namespace orrery::sim
