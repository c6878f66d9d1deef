// SPDX-License-Identifier: Apache-2.0
#include "plan/block/states.hpp"

#include <algorithm>

#include "base/math.hpp"
#include "plan/block/quantised_casts.hpp"
#include "plan/block/reduced_axes.hpp"

namespace orrery::plan {

namespace {

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

std::vector<Axis> reduced_axes(const StateGroup& group, const Mesh& mesh,
                               std::span<const Axis> among) {
  std::vector<Axis> axes;
  for (const Axis axis : among) {
    if (group.reduced_over(axis) && mesh.of(axis) > 1) {
      axes.push_back(axis);
    }
  }
  return axes;
}

bool shares_states(const StateGroup& group, Axis axis) {
  const bool always = std::find(kShardAxes.begin(), kShardAxes.end(), axis) != kShardAxes.end();
  return group.reduced_over(axis) && (always || group.copied[static_cast<std::size_t>(axis)]);
}

std::vector<Axis> shard_axes(const StateGroup& group, const Mesh& mesh) {
  std::vector<Axis> axes = reduced_axes(group, mesh, kAxes);
  std::erase_if(axes, [&](Axis axis) { return !shares_states(group, axis); });
  return axes;
}

std::vector<Axis> summing_tensor_axes(const StateGroup& group, const Mesh& mesh) {
  std::vector<Axis> axes = reduced_axes(group, mesh, kTensorAxes);
  std::erase_if(axes, [&](Axis axis) { return shares_states(group, axis); });
  return axes;
}

std::int64_t num_shards(const StateGroup& group, const Mesh& mesh) {
  std::int64_t shards = 1;
  for (const Axis axis : kAxes) {
    shards *= shares_states(group, axis) ? mesh.of(axis) : 1;
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

// Adds up what one rank holds, a group at a time.
class StateSum {
 public:
  StateSum(const BlockCost& block, const BlockPlan& layout, const Mesh& mesh,
           const Execution& execution, DType precision, int gpus_per_node)
      : block_(block),
        layout_(layout),
        mesh_(mesh),
        execution_(execution),
        precision_(precision),
        gpus_per_node_(gpus_per_node) {}

  void add(const StateGroup& group) {
    const std::int64_t shards = num_shards(group, mesh_);
    const std::int64_t sharded = ceil_div(group.elements, shards);
    const auto held = [&](int from_stage) {
      return layout_.zero_stage >= from_stage ? sharded : group.elements;
    };
    const Offload& offload = layout_.offload;
    const auto [stored, gradient, optimizer] = element_bytes_of(group, execution_, precision_);
    const ByteCount parameters = ByteCount(held(3)) * stored;
    place(offload.parameters, parameters, total_.parameters, total_);
    place(offload.gradients, ByteCount(held(2)) * gradient, total_.gradients, total_);
    place(offload.optimizer, ByteCount(held(1)) * optimizer, total_.optimizer, total_);
    const std::int64_t updated = group.frozen ? 0 : held(1);
    const GroupBytes bytes{
        ByteCount(updated) * stored,
        ByteCount(held(3)) * parameter_bytes(precision_),
        ByteCount(updated) * gradient,
        ByteCount(updated) * optimizer,
        unit_bytes(group, layout_, mesh_, execution_, precision_, block_.quantised.column_bytes),
        ByteCount(group.elements) * gradient};
    add_offload(offload, bytes, updated, total_);
    total_.frozen += group.frozen && on_device() ? parameters : ByteCount();
    add_casts(group, stored, shards);
    add_whole(group, bytes, shards);
  }

  StateBytes take() {
    if (casts_in_passes(block_, layout_, mesh_, execution_, precision_)) {
      total_.pass_casts = block_.quantised.largest_cast;
    }
    return total_;
  }

 private:
  bool on_device() const { return layout_.offload.parameters == Tier::Device; }

  // Under ZeRO-3 or elsewhere shards are cast, or what was gathered or fetched for every pass.
  void add_casts(const StateGroup& group, int stored, std::int64_t shards) {
    if ((layout_.zero_stage == 3 && shards > 1) || !on_device()) {
      return;
    }
    total_.cast_weights += cast_weight_bytes(group, block_.quantised);
    if (casts_replace(block_, layout_.offload, execution_, precision_)) {
      total_.replaced +=
          ByteCount(quantised_gather_elements(group, layout_, mesh_, execution_, precision_)) *
          stored;
    }
  }

  // What is whole for a while: parameters that a pass gathers, gradients before they are sharded.
  void add_whole(const StateGroup& group, const GroupBytes& bytes, std::int64_t shards) {
    if (shards == 1) {
      // Nothing is sharded, so nothing is put together; gradients that leave are made first.
      total_.unreduced +=
          layout_.offload.gradients != Tier::Device ? bytes.whole_gradients : ByteCount();
      return;
    }
    if (layout_.zero_stage == 3 && on_device()) {
      total_.gathered += bytes.whole_parameters;
      total_.parameters += second_shard(group);
    }
    if (layout_.zero_stage >= 2) {
      total_.unreduced += bytes.whole_gradients;
    }
  }

  // Of a node, which the backward gathers from; inside one node it is the first.
  ByteCount second_shard(const StateGroup& group) const {
    if (!execution_.hierarchical_gather || group.forward_only) {
      return ByteCount();
    }
    const auto ranks = group_of(mesh_, shard_axes(group, mesh_), gpus_per_node_);
    return ranks.nodes == 1
               ? ByteCount()
               : ByteCount(ceil_div(group.elements, std::int64_t{ranks.ranks_per_node})) *
                     parameter_bytes(precision_);
  }

  const BlockCost& block_;
  const BlockPlan& layout_;
  const Mesh& mesh_;
  const Execution& execution_;
  DType precision_;
  int gpus_per_node_;
  StateBytes total_{};
};

}  // namespace

StateBytes state_bytes(const BlockCost& block, const BlockPlan& layout, const Mesh& mesh,
                       const Execution& execution, DType precision, bool without_tied,
                       int gpus_per_node) {
  StateSum sum(block, layout, mesh, execution, precision, gpus_per_node);
  for (const StateGroup& group : block.states) {
    if (!group.tied || !without_tied) {
      sum.add(group);
    }
  }
  return sum.take();
}

}  // namespace orrery::plan
