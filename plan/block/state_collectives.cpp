// SPDX-License-Identifier: Apache-2.0
// The collectives over gradients and parameters of plan/block/states.hpp.
#include <array>
#include <utility>

#include "plan/block/reduced_axes.hpp"
#include "plan/block/states.hpp"

namespace orrery::plan {

using sim::CommKind;

costmodel::GroupShape StateCollective::group(const Mesh& mesh, int gpus_per_node) const {
  if (neighbours > 0) {
    return group_of({Extent{neighbours, mesh.stride(axes.front())}}, gpus_per_node);
  }
  costmodel::GroupShape group = group_of(mesh, axes, gpus_per_node);
  if (span == Span::InsideNode) {
    group.ranks = group.ranks_per_node;
    group.nodes = 1;
  } else if (span == Span::AcrossNodes) {
    group.groups_per_node *= group.ranks_per_node;
    group.ranks = group.nodes;
    group.ranks_per_node = 1;
  }
  return group;
}

namespace {

using Use = StateCollective::Use;
using Span = StateCollective::Span;

// Bytes of an element on the wire under ZeRO++ (Wang et al. 2023, arXiv 2306.10209): gradients in
// blocks of 4-bit integers, whose scales are not counted.
constexpr double kQuantisedGradient = 0.5;

class StateList {
 public:
  StateList(const BlockPlan& layout, const Mesh& mesh, const Execution& execution, DType precision,
            int gpus_per_node)
      : layout_(layout),
        mesh_(mesh),
        execution_(execution),
        gpus_per_node_(gpus_per_node),
        gradient_(gradient_bytes(execution, precision)),
        precision_(precision) {}

  void add(const StateGroup& group) {
    const double gathered = gathered_bytes(group, layout_, mesh_, execution_, precision_);
    const std::vector<Axis> shards = shard_axes(group, mesh_);
    const double elements = static_cast<double>(group.elements);
    if (!group.frozen) {
      reduce(group, shards, elements);
    }
    if (layout_.zero_stage == 3 || (layout_.zero_stage > 0 && !group.frozen)) {
      add(CommKind::AllGather, shards, gathered, Use::Gather);
    }
    if (layout_.zero_stage == 3 && !group.forward_only) {
      add(CommKind::AllGather, shards, gathered, Use::BackwardGather,
          execution_.hierarchical_gather ? Span::InsideNode : Span::All);
    }
    if (!group.frozen) {
      add(CommKind::AllReduce, summing_tensor_axes(group, mesh_), elements * gradient_,
          Use::Reduce);
    }
    for (const StateGroup::Repeated& one : group.repeated) {
      all_.push_back({.kind = CommKind::AllReduce,
                      .axes = {one.axis},
                      .bytes = static_cast<double>(one.elements) * gradient_,
                      .neighbours = one.ranks});
    }
  }

  std::vector<StateCollective> take() { return std::move(all_); }

 private:
  // Over the ranks that hold parts of the data.
  void reduce(const StateGroup& group, const std::vector<Axis>& shards, double elements) {
    const std::vector<Axis> replicas = reduced_axes(group, mesh_, std::array{Axis::Replica});
    const double gradients = elements * gradient_;
    const bool whole = layout_.zero_stage == 1 && execution_.allreduce_gradients;
    if (layout_.zero_stage == 0 || whole) {
      std::vector<Axis> both = shards;
      both.insert(both.end(), replicas.begin(), replicas.end());
      add(CommKind::AllReduce, both, gradients, Use::Reduce);
    } else {
      reduce_to_shards(shards, elements);
      add(CommKind::AllReduce, replicas, gradients / static_cast<double>(num_shards(group, mesh_)),
          Use::Reduce);
    }
  }

  // Quantised: exchanged inside the node, added up, and what is left exchanged between nodes.
  void reduce_to_shards(const std::vector<Axis>& shards, double elements) {
    if (!execution_.quantised_reduce || shards.empty()) {
      add(CommKind::ReduceScatter, shards, elements * gradient_, Use::Reduce);
      return;
    }
    const auto group = group_of(mesh_, shards, gpus_per_node_);
    const double bytes = elements * kQuantisedGradient;
    if (group.ranks_per_node > 1) {
      add(CommKind::AllToAll, shards, bytes, Use::Reduce, Span::InsideNode);
    }
    if (group.nodes > 1) {
      add(CommKind::AllToAll, shards, bytes / group.ranks_per_node, Use::Reduce, Span::AcrossNodes);
    }
  }

  void add(CommKind kind, const std::vector<Axis>& axes, double bytes, Use use,
           Span span = Span::All) {
    if (!axes.empty() && bytes > 0) {
      all_.push_back({kind, axes, bytes, use, span});
    }
  }

  const BlockPlan& layout_;
  const Mesh& mesh_;
  const Execution& execution_;
  int gpus_per_node_;
  double gradient_;
  DType precision_;
  std::vector<StateCollective> all_;
};

}  // namespace

std::vector<StateCollective> state_collectives(const BlockCost& block, const BlockPlan& layout,
                                               const Mesh& mesh, const Execution& execution,
                                               DType precision, bool without_tied,
                                               int gpus_per_node) {
  StateList list(layout, mesh, execution, precision, gpus_per_node);
  for (const StateGroup& group : block.states) {
    if (!group.tied || !without_tied) {
      list.add(group);
    }
  }
  return list.take();
}

}  // namespace orrery::plan
