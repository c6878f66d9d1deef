// SPDX-License-Identifier: Apache-2.0
#include "plan/block_rules.hpp"

#include <algorithm>
#include <numeric>

#include "base/error.hpp"

namespace orrery::plan {

Mesh mesh_of(const BlockPlan& layout, int dp) {
  const bool experts_over_tp = layout.expert_tp == 1 && layout.tp > 1;
  const int expert_axis = experts_over_tp ? std::max(1, layout.ep / layout.tp) : layout.ep;
  const int data = dp / expert_axis;
  int shard = data;
  if (layout.shard_degree > 0) {
    shard = std::gcd(std::max(1, layout.shard_degree / (layout.cp * expert_axis)), data);
  }
  Mesh mesh;
  mesh.size = {layout.tp, layout.cp, expert_axis, shard, data / shard};
  return mesh;
}

BlockRules rules_of(const BlockPlan& layout, bool vocab_parallel) {
  const auto at = [](AxisRules& rules, Axis axis) -> std::vector<Var>& {
    return rules.preference[static_cast<std::size_t>(axis)];
  };
  AxisRules rules;
  std::vector<Var>& tensor = at(rules, Axis::Tensor);
  if (layout.expert_tp == 1) {
    tensor.push_back(Var::Expert);
  }
  tensor.insert(tensor.end(), {Var::Head, Var::Ffn});
  if (vocab_parallel) {
    tensor.push_back(Var::Vocab);
  }
  if (layout.sequence_parallel) {
    tensor.push_back(Var::Seq);
  }
  at(rules, Axis::Context) = {Var::Seq};
  at(rules, Axis::Expert) = {Var::Expert, Var::Batch};
  at(rules, Axis::Shard) = {Var::Batch};
  at(rules, Axis::Replica) = {Var::Batch};

  BlockRules result{rules, rules};
  if (layout.context == ContextParallel::Ulysses) {
    at(result.attention, Axis::Context) = {Var::Head, Var::Seq};
  }
  return result;
}

Layout stream_layout(const BlockRules& rules) {
  Layout layout;
  for (std::size_t axis = 0; axis < kNumAxes; ++axis) {
    for (const Var var : rules.other.preference[axis]) {
      if (var == Var::Batch || var == Var::Seq) {
        layout.set(static_cast<Axis>(axis), Placement::sharded(var));
        break;
      }
    }
  }
  return layout;
}

namespace {

// Of the offsets in units of `unit`, below `limit`; 1 when there is none.
std::int64_t smallest_positive(const std::vector<std::int64_t>& offsets, std::int64_t unit,
                               std::int64_t limit) {
  std::int64_t smallest = 0;
  for (const std::int64_t offset : offsets) {
    const std::int64_t steps = offset < limit ? offset / unit : 0;
    if (steps > 0 && (smallest == 0 || steps < smallest)) {
      smallest = steps;
    }
  }
  return std::max<std::int64_t>(smallest, 1);
}

}  // namespace

costmodel::GroupShape group_of(const Mesh& mesh, const std::vector<Axis>& axes, int gpus_per_node) {
  std::vector<std::int64_t> offsets = {0};
  for (const Axis axis : axes) {
    const std::size_t known = offsets.size();
    for (int index = 1; index < mesh.of(axis); ++index) {
      for (std::size_t member = 0; member < known; ++member) {
        offsets.push_back(offsets[member] + std::int64_t{index} * mesh.stride(axis));
      }
    }
  }
  const auto on_first_node = std::count_if(offsets.begin(), offsets.end(),
                                           [&](std::int64_t rank) { return rank < gpus_per_node; });
  costmodel::GroupShape group;
  group.ranks = static_cast<int>(offsets.size());
  group.ranks_per_node = static_cast<int>(on_first_node);
  group.nodes = (group.ranks + group.ranks_per_node - 1) / group.ranks_per_node;
  group.groups_per_node = std::max(1, gpus_per_node / group.ranks_per_node);
  group.gpu_stride = static_cast<int>(smallest_positive(offsets, 1, gpus_per_node));
  group.node_stride = static_cast<int>(smallest_positive(offsets, gpus_per_node, INT64_MAX));
  return group;
}

}  // namespace orrery::plan
