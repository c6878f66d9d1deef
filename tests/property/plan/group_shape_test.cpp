// SPDX-License-Identifier: Apache-2.0
// Groups of ranks on nodes against counting all their members: random axes in any order.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <vector>

#include "plan/block_rules.hpp"

namespace orrery::plan {
namespace {

// The smallest of them that is not below `from`, in units of it; 1: none is.
int nearest(const std::vector<std::int64_t>& offsets, std::int64_t from, std::int64_t below) {
  const auto found = std::find_if(offsets.begin(), offsets.end(),
                                  [&](std::int64_t offset) { return offset >= from; });
  return found == offsets.end() || *found >= below ? 1 : static_cast<int>(*found / from);
}

TEST(GroupShapeProperty, CountsItsMembers) {
  EXPECT_TRUE(rc::check([] {
    std::vector<Extent> axes;
    std::int64_t stride = *rc::gen::inRange(1, 4);
    for (int left = *rc::gen::inRange(0, 5); left > 0; --left) {
      const int size = *rc::gen::inRange(1, 6);
      axes.push_back({size, stride});
      stride *= size * *rc::gen::inRange(1, 4);
    }
    const auto position = *rc::gen::inRange<std::size_t>(0, 5);
    std::rotate(axes.begin(),
                axes.begin() + static_cast<std::ptrdiff_t>(std::min(position, axes.size())),
                axes.end());
    const int gpus = *rc::gen::inRange(1, 17);
    std::vector<std::int64_t> offsets = {0};
    for (const Extent& axis : axes) {
      const std::size_t known = offsets.size();
      for (int index = 1; index < axis.size; ++index) {
        for (std::size_t member = 0; member < known; ++member) {
          offsets.push_back(offsets[member] + index * axis.stride);
        }
      }
    }
    std::sort(offsets.begin(), offsets.end());
    const costmodel::GroupShape group = group_of(axes, gpus);
    RC_ASSERT(group.ranks == static_cast<int>(offsets.size()));
    RC_ASSERT(group.ranks_per_node ==
              std::count_if(offsets.begin(), offsets.end(),
                            [&](std::int64_t offset) { return offset < gpus; }));
    RC_ASSERT(group.gpu_stride == nearest(offsets, 1, gpus));
    RC_ASSERT(group.node_stride == nearest(offsets, gpus, offsets.back() + 1));
  }));
}

}  // namespace
}  // namespace orrery::plan
