// SPDX-License-Identifier: Apache-2.0
#include "sim/orders/first_start.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <vector>

#include "sim/orders/order_blocks.hpp"

namespace orrery::sim {
namespace {

TEST(FirstStartProperty, IsTheFirstOfTheLeast) {
  EXPECT_TRUE(rc::check([] {
    const auto devices = *rc::gen::inRange<std::size_t>(1, 20);
    FirstStart starts(devices);
    std::vector<std::int64_t> plain(devices, FirstStart::kNever);
    RC_ASSERT(starts.none());
    const auto changes = *rc::gen::inRange(1, 60);
    for (int k = 0; k < changes; ++k) {
      const auto device = *rc::gen::inRange<std::size_t>(0, devices);
      const std::int64_t start = *rc::gen::weightedOneOf<std::int64_t>(
          {{1, rc::gen::just(FirstStart::kNever)}, {4, rc::gen::inRange<std::int64_t>(0, 8)}});
      starts.set(device, start);
      plain[device] = start;
      const auto least = std::min_element(plain.begin(), plain.end());
      RC_ASSERT(starts.none() == (*least == FirstStart::kNever));
      if (!starts.none()) {
        RC_ASSERT(starts.first() == static_cast<std::size_t>(least - plain.begin()));
      }
    }
  }));
}

// Against a scan of all devices for every block.
TEST(FirstStartProperty, BlocksGoWhereTheyCanStartFirst) {
  EXPECT_TRUE(rc::check([] {
    const int devices = 12;
    const auto sizes = *rc::gen::container<std::vector<int>>(rc::gen::element(1, 2, 3, 4, 6, 12));
    const std::vector<DeviceBlock> blocks = soonest_blocks(sizes, devices);
    RC_ASSERT(blocks.size() == sizes.size());
    std::vector<int> load(devices, 0);
    for (std::size_t k = 0; k < blocks.size(); ++k) {
      const auto [size, first] = blocks[k];
      RC_ASSERT((k == 0 || size <= blocks[k - 1].size));
      RC_ASSERT(first % size == 0);
      const auto busy = [&](int from) {
        return *std::max_element(load.begin() + from, load.begin() + from + size);
      };
      for (int other = 0; other < devices; other += size) {
        RC_ASSERT((other < first ? busy(first) < busy(other) : busy(first) <= busy(other)));
      }
      std::fill_n(load.begin() + first, size, busy(first) + 1);
    }
  }));
}

}  // namespace
}  // namespace orrery::sim
