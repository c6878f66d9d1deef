// SPDX-License-Identifier: Apache-2.0
// The order of the ranks of a mesh, and where groups over its axes lie.
#include <algorithm>
#include <limits>
#include <numeric>

#include "plan/block_rules.hpp"
#include "plan/layout.hpp"

namespace orrery::plan {

std::string_view to_text(Axis axis) {
  constexpr std::array<std::string_view, kNumAxes> kNames = {
      "tp", "tp-row", "tp-depth", "cp-heads", "cp", "ep", "dp", "dp-replica"};
  return kNames[static_cast<std::size_t>(axis)];
}

std::array<Axis, kNumAxes> Mesh::order() const {
  std::array<Axis, kNumAxes> order = kAxes;
  const auto place = std::find(order.begin(), order.end(), innermost);
  std::rotate(order.begin(), place, place + 1);
  const auto expert = std::find(order.begin(), order.end(), Axis::Expert);
  if (expert_before != Axis::Shard) {
    const auto before = expert_before == Axis::Tensor
                            ? order.begin()
                            : std::find(order.begin(), expert, expert_before);
    std::rotate(before, expert, expert + 1);
  }
  return order;
}

int Mesh::stride(Axis axis) const {
  int stride = 1;
  for (const Axis faster : order()) {
    if (faster == axis) {
      break;
    }
    stride *= of(faster);
  }
  return stride;
}

std::int64_t Mesh::span(std::span<const Axis> axes) const {
  std::int64_t span = 1;
  for (const Axis axis : axes) {
    span = of(axis) > 1 ? std::max(span, std::int64_t{stride(axis)} * of(axis)) : span;
  }
  return span;
}

int Mesh::num_ranks() const {
  int ranks = 1;
  for (const int axis_size : size) {
    ranks *= axis_size;
  }
  return ranks;
}

namespace {

// Of groups whose first one lies inside a node, in blocks of so many ranks: where blocks do not
// divide the GPUs of a node, those that lie across two nodes are the slowest, and all wait for
// them.
void lay_across_nodes(std::int64_t block, int gpus_per_node, costmodel::GroupShape& group) {
  const std::int64_t ends = block / std::gcd(block, std::int64_t{gpus_per_node});
  if (ends == 1) {
    return;  // every node ends where a block does
  }
  group.nodes = 2;
  group.ranks_per_node = (group.ranks + 1) / 2;
  // Those through one end of a node, or through both.
  group.groups_per_node = std::min(group.gpu_stride * (ends == 2 ? 1 : 2),
                                   std::max(1, gpus_per_node / group.ranks_per_node));
}

}  // namespace

// Members are distances in ranks from the first one. One step of an axis back from the nearest
// member beyond the first node there is one inside, so those inside and a step from them suffice.
costmodel::GroupShape group_of(const std::vector<Extent>& axes, int gpus_per_node) {
  const std::int64_t none = std::numeric_limits<std::int64_t>::max();
  std::vector<std::int64_t> inside = {0};
  std::int64_t beyond = none;
  std::int64_t block = 1;
  costmodel::GroupShape group;
  group.ranks = 1;
  for (const Extent& axis : axes) {
    group.ranks *= axis.size;
    if (axis.size > 1) {
      block = std::max(block, axis.size * axis.stride);
    }
    const std::size_t known = inside.size();
    for (std::size_t member = 0; member < known; ++member) {
      for (int index = 1; index < axis.size; ++index) {
        const std::int64_t offset = inside[member] + index * axis.stride;
        if (offset >= gpus_per_node) {
          beyond = std::min(beyond, offset);
          break;
        }
        inside.push_back(offset);
      }
    }
  }
  group.ranks_per_node = static_cast<int>(inside.size());
  group.nodes = (group.ranks + group.ranks_per_node - 1) / group.ranks_per_node;
  group.groups_per_node = std::max(1, gpus_per_node / group.ranks_per_node);
  std::sort(inside.begin(), inside.end());
  group.gpu_stride = inside.size() > 1 ? static_cast<int>(inside[1]) : 1;
  group.node_stride = beyond < none ? static_cast<int>(beyond / gpus_per_node) : 1;
  if (group.nodes == 1) {
    lay_across_nodes(block, gpus_per_node, group);
  }
  return group;
}

costmodel::GroupShape group_of(const Mesh& mesh, const std::vector<Axis>& axes, int gpus_per_node) {
  std::vector<Extent> extents;
  for (const Axis axis : axes) {
    extents.push_back({mesh.of(axis), mesh.stride(axis)});
  }
  return group_of(extents, gpus_per_node);
}

}  // namespace orrery::plan
