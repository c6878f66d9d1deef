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

// Whether the first or the last group of some block of ranks lies on two nodes; `last` is the
// distance of a group's last member from its first.
bool any_straddles(const std::vector<Extent>& axes, std::int64_t last, int gpus) {
  std::int64_t block = 1;
  for (const Extent& axis : axes) {
    block = axis.size > 1 ? std::max(block, axis.size * axis.stride) : block;
  }
  for (std::int64_t begin = 0; begin < block * gpus; begin += block) {
    for (const std::int64_t first : {begin, begin + block - 1 - last}) {
      if (first / gpus != (first + last) / gpus) {
        return true;
      }
    }
  }
  return false;
}

// Eight nodes of six GPUs and tensor groups of four: every second one begins in one node and ends
// in the next.
TEST(GroupShape, OfGroupsAcrossTwoNodesCount) {
  const costmodel::GroupShape sixes = group_of({{4, 1}}, 6);
  EXPECT_EQ(sixes.nodes, 2);
  EXPECT_EQ(sixes.ranks_per_node, 2);
  EXPECT_EQ(sixes.groups_per_node, 1);                  // nodes end in no group or in one
  EXPECT_EQ(group_of({{4, 1}}, 7).groups_per_node, 2);  // one begins before a node, one ends behind
  const costmodel::GroupShape pairs = group_of({{2, 4}}, 6);  // 0 and 4, 2 and 6
  EXPECT_EQ(pairs.nodes, 2);
  EXPECT_EQ(pairs.ranks_per_node, 1);
  EXPECT_EQ(group_of({{3, 2}}, 6).nodes, 1);
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
    const auto inside = std::count_if(offsets.begin(), offsets.end(),
                                      [&](std::int64_t offset) { return offset < gpus; });
    const bool straddles = inside == group.ranks && any_straddles(axes, offsets.back(), gpus);
    RC_ASSERT(group.ranks_per_node == (straddles ? (group.ranks + 1) / 2 : inside));
    RC_ASSERT(group.nodes == (group.ranks + group.ranks_per_node - 1) / group.ranks_per_node);
    RC_ASSERT(group.gpu_stride == nearest(offsets, 1, gpus));
    RC_ASSERT(group.node_stride == nearest(offsets, gpus, offsets.back() + 1));
  }));
}

}  // namespace
}  // namespace orrery::plan
