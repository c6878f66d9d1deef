// SPDX-License-Identifier: Apache-2.0
// The end of the step: tied embeddings are summed, all devices meet at the gradient norm, then the
// optimizer and gathers that do not overlap.
#include "plan/flat/passes.hpp"

namespace orrery::plan {

Spread FlatPasses::add_tied_sum(const std::vector<int>& devices, Seconds time) {
  sim::Tag tag;
  tag.micro_batch = sim::kAllMicroBatches;
  tag.pass = sim::PassKind::Communication;
  tag.comm = sim::CommKind::AllReduce;
  tag.name = names_.tied;
  const auto holder = [&](int device) -> Device& {
    return devices_[static_cast<std::size_t>(device)];
  };
  Spread node;
  for (std::size_t rank = 0; rank < ranks_.num_ranks(); ++rank) {
    std::vector<sim::StreamId> streams;
    for (const int device : devices) {
      streams.push_back(holder(device).streams.of(Lane::Data)[rank]);
    }
    const sim::NodeId added = ranks_.program().add_group(streams, to_sim_time(time), tag);
    node.first = rank == 0 ? added : node.first;
  }
  for (const int device : devices) {
    depend_on_front(node, holder(device).front, -1);
  }
  return node;
}

Spread FlatPasses::add_norm(const Spread& tied) {
  sim::Tag tag;
  tag.micro_batch = sim::kAllMicroBatches;
  tag.pass = sim::PassKind::Communication;
  tag.name = names_.norm;
  std::vector<sim::StreamId> streams;
  for (const Device& device : devices_) {
    const std::vector<sim::StreamId>& compute = device.streams.of(Lane::Compute);
    streams.insert(streams.end(), compute.begin(), compute.end());
  }
  const Spread norm = ranks_.add_barrier(streams, tag);
  for (const Device& device : devices_) {
    depend_on_front(norm, device.front, kCompute);
    ranks_.depend(norm, device.data);
  }
  ranks_.depend(norm, tied);
  return norm;
}

void FlatPasses::add_optimizer(std::size_t device_index, Seconds time, const Spread& norm) {
  Device& device = devices_[device_index];
  sim::Tag tag;
  tag.micro_batch = sim::kAllMicroBatches;
  tag.pass = sim::PassKind::Optimizer;
  tag.name = names_.optimizer;
  const Spread optimizer = ranks_.add_kernel(device.streams, Lane::Compute, time, tag);
  ranks_.depend(optimizer, norm);
  if (plan_.execution.overlap_param_gather) {
    return;
  }
  device.front = {optimizer, {}, {}};
  for (std::size_t stage = 0; stage < stages_.size(); ++stage) {
    if (order_.device_of[stage] != device_index || stages_[stage].zero_stage == 3) {
      continue;
    }
    for (const FlatStage::Item& item : stages_[stage].blocks) {
      tag.chunk = static_cast<std::uint16_t>(stage);
      ranks_.depend(add_gather(device, item, tag, false), optimizer);
    }
  }
}

}  // namespace orrery::plan
