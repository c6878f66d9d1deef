// SPDX-License-Identifier: Apache-2.0
// What the collectives of a block's states take.
#include <algorithm>

#include "plan/block/quantised_casts.hpp"
#include "plan/block/states.hpp"

namespace orrery::plan {

namespace {

class Traffic {
 public:
  Traffic(const Mesh& mesh, const BlockCosts& costs) : mesh_(mesh), costs_(costs) {}

  // A collective of a buffer cut into buckets of the execution's size.
  Seconds time(const StateCollective& one) {
    const bool of_tensor_ranks = std::all_of(one.axes.begin(), one.axes.end(), is_tensor_axis);
    const BlockCosts& costs = of_tensor_ranks ? costs_ : costs_.data_costs();
    const auto group = one.group(mesh_, costs.cluster().node.gpus);
    between_nodes = between_nodes || group.nodes > 1;
    const double bucket = static_cast<double>(costs.execution().bucket_bytes);
    if (bucket <= 0) {
      return costs.scaled(group, costs.collectives().time(one.kind, Bytes(one.bytes), group));
    }
    const double size = std::min(bucket, one.bytes);
    const Seconds part = costs.collectives().time(one.kind, Bytes(size), group);
    return costs.scaled(group, part) * (one.bytes / size);
  }

  bool between_nodes = false;

 private:
  const Mesh& mesh_;
  const BlockCosts& costs_;
};

}  // namespace

StateTraffic& StateTraffic::operator+=(const StateTraffic& other) {
  reduce += other.reduce;
  gather += other.gather;
  gather_backward += other.gather_backward;
  gradient += other.gradient;
  copy_forward += other.copy_forward;
  copy_backward += other.copy_backward;
  between_nodes = between_nodes || other.between_nodes;
  return *this;
}

namespace {

// Passes over whole parameters and gradients beside the collectives (torch/distributed/fsdp).
// fully_shard: foreach_all_gather_copy_out and foreach_reduce_scatter_copy_in, both on the compute
// stream. FullyShardedDataParallel gathers in place, but autograd joins the gradients of its views
// (torch.cat), and beside the backward they are cast to the type of the reduction and divided.
// `gathered` bytes of the parameters arrive.
void add_copies(const BlockCosts& costs, const StateGroup& group, double gathered,
                StateTraffic& total) {
  const Execution& execution = costs.execution();
  const double parameter = parameter_bytes(costs.precision());
  const double gradient = gradient_bytes(execution, costs.precision());
  const auto copy = [&](double bytes) {
    return costs.scaled(CostClass::MemoryBound,
                        costs.device().memory_bound(Bytes(bytes), costmodel::MemoryKernel::Copy));
  };
  const auto pass = [&](double bytes) {  // of an element
    return copy(static_cast<double>(group.elements) * bytes);
  };
  if (execution.copies_gathered) {
    const bool again = execution.reshard_after_forward && !group.forward_only;
    total.copy_forward += copy(2 * gathered);
    total.copy_backward += group.frozen ? Seconds() : pass(parameter + gradient);
    total.copy_backward += again ? copy(2 * gathered) : Seconds();
  }
  if (execution.flattens_gradients && !group.frozen) {
    total.copy_backward += pass(2 * parameter);
    total.reduce += gradient != parameter ? pass(parameter + gradient) : Seconds();
    total.reduce += pass(2 * gradient);
  }
}

}  // namespace

StateTraffic state_traffic(const BlockCost& block, const BlockPlan& layout, const Mesh& mesh,
                           const BlockCosts& costs, bool without_tied) {
  StateTraffic total;
  Traffic traffic(mesh, costs);
  const PassCasts casts = weight_casts_of_passes(block, layout, mesh, costs.precision(),
                                                 costs.device(), costs.execution());
  total.copy_forward = costs.scaled(CostClass::MemoryBound, casts.forward);
  total.copy_backward = costs.scaled(CostClass::MemoryBound, casts.backward);
  const int gradient = gradient_bytes(costs.execution(), costs.precision());
  for (const StateGroup& group : block.states) {
    if (group.tied && without_tied) {
      continue;
    }
    total.gradient += ByteCount(group.frozen ? 0 : group.elements) * gradient;
    if (layout.zero_stage == 3 && num_shards(group, mesh) > 1) {
      add_copies(costs, group,
                 gathered_bytes(group, layout, mesh, costs.execution(), costs.precision()), total);
    }
  }
  for (const StateCollective& one :
       state_collectives(block, layout, mesh, costs.execution(), costs.precision(), without_tied,
                         costs.cluster().node.gpus)) {
    Seconds& sum = one.use == StateCollective::Use::Reduce   ? total.reduce
                   : one.use == StateCollective::Use::Gather ? total.gather
                                                             : total.gather_backward;
    sum += traffic.time(one);
  }
  total.between_nodes = traffic.between_nodes;
  return total;
}

}  // namespace orrery::plan
