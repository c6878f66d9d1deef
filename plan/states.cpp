// SPDX-License-Identifier: Apache-2.0
#include "plan/states.hpp"

#include <algorithm>

#include "base/math.hpp"

namespace orrery::plan {

namespace {

using sim::CommKind;

// Axes over which the states may be sharded, and those that only replicate them.
constexpr std::array<Axis, 3> kShardAxes = {Axis::Context, Axis::Expert, Axis::Shard};

std::vector<Axis> shard_axes(const StateGroup& group, const Mesh& mesh) {
  std::vector<Axis> axes;
  for (const Axis axis : kShardAxes) {
    if (group.reduced_over(axis) && mesh.of(axis) > 1) {
      axes.push_back(axis);
    }
  }
  return axes;
}

std::int64_t num_shards(const StateGroup& group, const Mesh& mesh) {
  std::int64_t shards = 1;
  for (const Axis axis : shard_axes(group, mesh)) {
    shards *= mesh.of(axis);
  }
  return shards;
}

int parameter_bytes(DType precision) {
  return element_bytes(models::Element::Param, precision);
}

int gradient_bytes(const Execution& execution, DType precision) {
  return execution.fp32_gradients ? 4 : parameter_bytes(precision);
}

// The copy of a parameter that lasts from step to step.
int stored_bytes(const Execution& execution, DType precision) {
  return execution.fp32_parameters ? 4 : parameter_bytes(precision);
}

int optimizer_bytes(const Execution& execution, DType precision) {
  const bool master = execution.master_weights && stored_bytes(execution, precision) < 4;
  return execution.optimizer_state_bytes + (master ? 4 : 0);
}

// Adds bytes where they live.
void place(Tier tier, ByteCount bytes, ByteCount& device, StateBytes& total) {
  switch (tier) {
    case Tier::Device:
      device += bytes;
      return;
    case Tier::Host:
      total.host += bytes;
      return;
    case Tier::Disk:
      total.disk += bytes;
      return;
  }
}

// What moves because tensors of a group live elsewhere; `shard` is what this rank updates.
struct GroupBytes {
  ByteCount shard_parameters;  // as they last
  ByteCount fetched;           // shard of a pass, in the precision of the pass
  ByteCount gradients;         // of the shard
  ByteCount optimizer;
  ByteCount whole_parameters;
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

class Traffic {
 public:
  Traffic(const Mesh& mesh, const BlockCosts& costs) : mesh_(mesh), costs_(costs) {}

  // A collective over several axes of a buffer cut into buckets of the execution's size.
  Seconds time(CommKind kind, double bytes, const std::vector<Axis>& axes) {
    if (axes.empty() || bytes <= 0) {
      return Seconds();
    }
    const auto group = group_of(mesh_, axes, costs_.cluster().node.gpus);
    between_nodes = between_nodes || group.nodes > 1;
    const double bucket = static_cast<double>(costs_.execution().bucket_bytes);
    if (bucket <= 0) {
      return costs_.scaled(group, costs_.collectives().time(kind, Bytes(bytes), group));
    }
    const double size = std::min(bucket, bytes);
    const Seconds one = costs_.collectives().time(kind, Bytes(size), group);
    return costs_.scaled(group, one) * (bytes / size);
  }

  bool between_nodes = false;

 private:
  const Mesh& mesh_;
  const BlockCosts& costs_;
};

}  // namespace

StateBytes& StateBytes::operator+=(const StateBytes& other) {
  parameters += other.parameters;
  gradients += other.gradients;
  optimizer += other.optimizer;
  gathered += other.gathered;
  unreduced += other.unreduced;
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

StateTraffic& StateTraffic::operator+=(const StateTraffic& other) {
  reduce += other.reduce;
  gather += other.gather;
  gradient += other.gradient;
  between_nodes = between_nodes || other.between_nodes;
  return *this;
}

StateBytes state_bytes(const BlockCost& block, const BlockPlan& layout, const Mesh& mesh,
                       const Execution& execution, DType precision, bool without_tied) {
  StateBytes total{};
  for (const StateGroup& group : block.states) {
    if (group.tied && without_tied) {
      continue;
    }
    const std::int64_t sharded = ceil_div(group.elements, num_shards(group, mesh));
    const auto held = [&](int from_stage) {
      return layout.zero_stage >= from_stage ? sharded : group.elements;
    };
    const Offload& offload = layout.offload;
    const int stored = stored_bytes(execution, precision);
    const int gradient = gradient_bytes(execution, precision);
    const ByteCount optimizer = ByteCount(held(1)) * optimizer_bytes(execution, precision);
    place(offload.parameters, ByteCount(held(3)) * stored, total.parameters, total);
    place(offload.gradients, ByteCount(held(2)) * gradient, total.gradients, total);
    place(offload.optimizer, optimizer, total.optimizer, total);
    const GroupBytes bytes{ByteCount(held(1)) * stored,
                           ByteCount(held(3)) * parameter_bytes(precision),
                           ByteCount(held(1)) * gradient,
                           optimizer,
                           ByteCount(group.elements) * parameter_bytes(precision),
                           ByteCount(group.elements) * gradient};
    add_offload(offload, bytes, held(1), total);
    if (num_shards(group, mesh) == 1) {
      // Nothing is sharded, so nothing is put together; gradients that leave are made first.
      total.unreduced +=
          offload.gradients != Tier::Device ? bytes.whole_gradients : ByteCount();
      continue;
    }
    if (layout.zero_stage == 3 && offload.parameters == Tier::Device) {
      total.gathered += ByteCount(group.elements) * parameter_bytes(precision);
    }
    if (layout.zero_stage >= 2) {
      total.unreduced += ByteCount(group.elements) * gradient_bytes(execution, precision);
    }
  }
  return total;
}

StateTraffic state_traffic(const BlockCost& block, const BlockPlan& layout, const Mesh& mesh,
                           const BlockCosts& costs, bool without_tied) {
  StateTraffic total;
  Traffic traffic(mesh, costs);
  const int gradient = gradient_bytes(costs.execution(), costs.precision());
  const int parameter = parameter_bytes(costs.precision());
  for (const StateGroup& group : block.states) {
    if (group.tied && without_tied) {
      continue;
    }
    const std::vector<Axis> shards = shard_axes(group, mesh);
    std::vector<Axis> replicas;
    if (group.reduced_over(Axis::Replica) && mesh.of(Axis::Replica) > 1) {
      replicas.push_back(Axis::Replica);
    }
    const double elements = static_cast<double>(group.elements);
    total.gradient += ByteCount(group.elements) * gradient;
    if (layout.zero_stage == 0) {
      std::vector<Axis> all = shards;
      all.insert(all.end(), replicas.begin(), replicas.end());
      total.reduce += traffic.time(CommKind::AllReduce, elements * gradient, all);
    } else {
      const double part = elements / static_cast<double>(num_shards(group, mesh));
      total.reduce += traffic.time(CommKind::ReduceScatter, elements * gradient, shards);
      total.reduce += traffic.time(CommKind::AllReduce, part * gradient, replicas);
      total.gather += traffic.time(CommKind::AllGather, elements * parameter, shards);
    }
    if (group.reduced_over(Axis::Tensor) && mesh.of(Axis::Tensor) > 1) {
      total.reduce += traffic.time(CommKind::AllReduce, elements * gradient, {Axis::Tensor});
    }
  }
  total.between_nodes = traffic.between_nodes;
  return total;
}

}  // namespace orrery::plan
