// SPDX-License-Identifier: Apache-2.0
#include "plan/block/states.hpp"

#include <algorithm>
#include <array>
#include <span>

#include "base/math.hpp"
#include "plan/block/quantised_casts.hpp"

namespace orrery::plan {

namespace {

using sim::CommKind;

// Axes over which the states may be sharded, and those that only replicate them.
constexpr std::array<Axis, 4> kShardAxes = {Axis::ContextHeads, Axis::Context, Axis::Expert,
                                            Axis::Shard};

std::vector<Axis> shard_axes(const StateGroup& group, const Mesh& mesh) {
  std::vector<Axis> axes;
  for (const Axis axis : kShardAxes) {
    if (group.reduced_over(axis) && mesh.of(axis) > 1) {
      axes.push_back(axis);
    }
  }
  return axes;
}

// The copy of a parameter that lasts from step to step.
int stored_bytes(const Execution& execution, DType precision) {
  return execution.fp32_parameters ? 4 : parameter_bytes(precision);
}

bool has_master(const Execution& execution, DType precision) {
  return execution.master_weights && stored_bytes(execution, precision) < 4;
}

int optimizer_bytes(const Execution& execution, DType precision) {
  return execution.optimizer_state_bytes + (has_master(execution, precision) ? 4 : 0);
}

struct ElementBytes {
  int stored = 0;
  int gradient = 0;
  int optimizer = 0;
};

// What is frozen has the precision of a pass, since no optimizer needs more, and nothing else.
ElementBytes element_bytes_of(const StateGroup& group, const Execution& execution,
                              DType precision) {
  return group.frozen ? ElementBytes{parameter_bytes(precision)}
                      : ElementBytes{stored_bytes(execution, precision),
                                     gradient_bytes(execution, precision),
                                     optimizer_bytes(execution, precision)};
}

// Adds bytes where they live.
void place(Tier tier, ByteCount bytes, ByteCount& device, StateBytes& total) {
  (tier == Tier::Device ? device : tier == Tier::Host ? total.host : total.disk) += bytes;
}

// What moves because tensors of a group live elsewhere; `shard` is what this rank updates.
struct GroupBytes {
  ByteCount shard_parameters;  // that it updates, as they last
  ByteCount fetched;           // shard of a pass, in the precision of the pass
  ByteCount gradients;         // of the shard
  ByteCount optimizer;
  ByteCount whole_parameters;  // as a pass reads them
  ByteCount whole_gradients;
};

void add_offload(const Offload& offload, const GroupBytes& bytes, std::int64_t updated,
                 StateBytes& total) {
  if (offload.parameters != Tier::Device) {
    total.fetched += bytes.fetched;
    total.gathered += bytes.whole_parameters;
  }
  if (offload.gradients != Tier::Device) {
    total.sent += bytes.gradients;
  }
  if (offload.optimizer == Tier::Device) {
    total.local_parameters += updated;
    return;
  }
  HostUpdate& update = total.update;
  update.parameters += updated;
  update.down += offload.gradients == Tier::Device ? bytes.gradients : ByteCount();
  update.up += offload.parameters == Tier::Device ? bytes.shard_parameters : ByteCount();
  const auto on_disk = [](Tier tier, ByteCount size) {
    return tier == Tier::Disk ? size : ByteCount();
  };
  const ByteCount states = on_disk(offload.optimizer, bytes.optimizer);
  update.from_disk += states + on_disk(offload.gradients, bytes.gradients);
  update.to_disk += states + on_disk(offload.parameters, bytes.shard_parameters);
}

// Weights that are cast once a step.
ByteCount cast_weight_bytes(const StateGroup& group, const QuantisedProducts& products) {
  return ByteCount(
      static_cast<std::int64_t>(static_cast<double>(group.quantised) * products.row_bytes +
                                static_cast<double>(group.transposed) * products.column_bytes));
}

// Whether they stand for the 16-bit parameters where those are gathered in 8 bits: what the
// optimizer updates is a master copy.
bool casts_replace(const BlockCost& block, const Offload& offload, const Execution& execution,
                   DType precision) {
  return block.quantised.row_bytes > 0 && offload.parameters == Tier::Device &&
         has_master(execution, precision);
}

}  // namespace

std::int64_t num_shards(const StateGroup& group, const Mesh& mesh) {
  std::int64_t shards = 1;
  for (const Axis axis : kShardAxes) {
    shards *= group.reduced_over(axis) ? mesh.of(axis) : 1;
  }
  return shards;
}

int parameter_bytes(DType precision) { return element_bytes(models::Element::Param, precision); }

int gradient_bytes(const Execution& execution, DType precision) {
  return execution.fp32_gradients ? 4 : parameter_bytes(precision);
}

StateBytes& StateBytes::operator+=(const StateBytes& other) {
  parameters += other.parameters;
  frozen += other.frozen;
  replaced += other.replaced;
  cast_weights += other.cast_weights;
  gradients += other.gradients;
  optimizer += other.optimizer;
  gathered += other.gathered;
  unreduced += other.unreduced;
  pass_casts += other.pass_casts;
  local_parameters += other.local_parameters;
  host += other.host;
  disk += other.disk;
  fetched += other.fetched;
  sent += other.sent;
  update.parameters += other.update.parameters;
  update.down += other.update.down;
  update.up += other.update.up;
  update.from_disk += other.update.from_disk;
  update.to_disk += other.update.to_disk;
  return *this;
}

bool gathers_quantised(const Execution& execution, DType precision) {
  const bool scales_of_blocks =
      precision == DType::Fp8 && execution.fp8_scaling == Fp8Scaling::Blocks;
  return execution.quantised_gather && !scales_of_blocks;
}

std::int64_t quantised_gather_elements(const StateGroup& group, const BlockPlan& layout,
                                       const Mesh& mesh, const Execution& execution,
                                       DType precision) {
  const bool gathers = layout.zero_stage == 3 || (layout.zero_stage > 0 && !group.frozen);
  if (!gathers || !gathers_quantised(execution, precision) || num_shards(group, mesh) == 1) {
    return 0;
  }
  return is_quantised(precision) ? group.quantised : group.elements;
}

double quantised_weight_bytes(DType precision) { return precision == DType::Nvfp4 ? 0.5 : 1.0; }

double gathered_bytes(const StateGroup& group, const BlockPlan& layout, const Mesh& mesh,
                      const Execution& execution, DType precision) {
  const std::int64_t quantised =
      quantised_gather_elements(group, layout, mesh, execution, precision);
  return static_cast<double>(quantised) * quantised_weight_bytes(precision) +
         static_cast<double>(group.elements - quantised) * parameter_bytes(precision);
}

bool stays_packed(const StateGroup& group, const BlockPlan& layout, const Mesh& mesh,
                  const Execution& execution, DType precision) {
  return layout.zero_stage == 3 && is_quantised(precision) &&
         quantised_gather_elements(group, layout, mesh, execution, precision) > 0;
}

namespace {

// Parameters of a group as a pass reads them: whole, in its precision, or as they were gathered,
// with their columns.
ByteCount unit_bytes(const StateGroup& group, const BlockPlan& layout, const Mesh& mesh,
                     const Execution& execution, DType precision, double column_bytes) {
  if (!stays_packed(group, layout, mesh, execution, precision)) {
    return ByteCount(group.elements) * parameter_bytes(precision);
  }
  return ByteCount(
      static_cast<std::int64_t>(gathered_bytes(group, layout, mesh, execution, precision) +
                                static_cast<double>(group.transposed) * column_bytes));
}

}  // namespace

StateBytes state_bytes(const BlockCost& block, const BlockPlan& layout, const Mesh& mesh,
                       const Execution& execution, DType precision, bool without_tied,
                       int gpus_per_node) {
  StateBytes total{};
  for (const StateGroup& group : block.states) {
    if (group.tied && without_tied) {
      continue;
    }
    const std::int64_t shards = num_shards(group, mesh);
    const std::int64_t sharded = ceil_div(group.elements, shards);
    const auto held = [&](int from_stage) {
      return layout.zero_stage >= from_stage ? sharded : group.elements;
    };
    const Offload& offload = layout.offload;
    const auto [stored, gradient, optimizer] = element_bytes_of(group, execution, precision);
    const ByteCount parameters = ByteCount(held(3)) * stored;
    place(offload.parameters, parameters, total.parameters, total);
    place(offload.gradients, ByteCount(held(2)) * gradient, total.gradients, total);
    place(offload.optimizer, ByteCount(held(1)) * optimizer, total.optimizer, total);
    const std::int64_t updated = group.frozen ? 0 : held(1);
    const GroupBytes bytes{
        ByteCount(updated) * stored,
        ByteCount(held(3)) * parameter_bytes(precision),
        ByteCount(updated) * gradient,
        ByteCount(updated) * optimizer,
        unit_bytes(group, layout, mesh, execution, precision, block.quantised.column_bytes),
        ByteCount(group.elements) * gradient};
    add_offload(offload, bytes, updated, total);
    total.frozen += group.frozen && offload.parameters == Tier::Device ? parameters : ByteCount();
    // Else shards are cast, or what was gathered or fetched for every pass.
    if (layout.zero_stage < 3 && offload.parameters == Tier::Device) {
      total.cast_weights += cast_weight_bytes(group, block.quantised);
      if (casts_replace(block, offload, execution, precision)) {
        total.replaced +=
            ByteCount(quantised_gather_elements(group, layout, mesh, execution, precision)) *
            stored;
      }
    }
    if (shards == 1) {
      // Nothing is sharded, so nothing is put together; gradients that leave are made first.
      total.unreduced += offload.gradients != Tier::Device ? bytes.whole_gradients : ByteCount();
      continue;
    }
    if (layout.zero_stage == 3 && offload.parameters == Tier::Device) {
      total.gathered += bytes.whole_parameters;
      if (execution.hierarchical_gather && !group.forward_only) {
        const auto ranks = group_of(mesh, shard_axes(group, mesh), gpus_per_node);
        // Inside one node the second shard is the first.
        total.parameters +=
            ranks.nodes == 1
                ? ByteCount()
                : ByteCount(ceil_div(group.elements, std::int64_t{ranks.ranks_per_node})) *
                      parameter_bytes(precision);
      }
    }
    if (layout.zero_stage >= 2) {
      total.unreduced += bytes.whole_gradients;
    }
  }
  if (casts_in_passes(block, layout, mesh, execution, precision)) {
    total.pass_casts = block.quantised.largest_cast;
  }
  return total;
}

costmodel::GroupShape StateCollective::group(const Mesh& mesh, int gpus_per_node) const {
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
      add(CommKind::AllReduce, reduced_axes(group, kTensorAxes), elements * gradient_, Use::Reduce);
    }
  }

  std::vector<StateCollective> take() { return std::move(all_); }

 private:
  std::vector<Axis> reduced_axes(const StateGroup& group, std::span<const Axis> among) const {
    std::vector<Axis> axes;
    for (const Axis axis : among) {
      if (group.reduced_over(axis) && mesh_.of(axis) > 1) {
        axes.push_back(axis);
      }
    }
    return axes;
  }

  // Over the ranks that hold parts of the data.
  void reduce(const StateGroup& group, const std::vector<Axis>& shards, double elements) {
    const std::vector<Axis> replicas = reduced_axes(group, std::array{Axis::Replica});
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
