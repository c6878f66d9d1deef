// SPDX-License-Identifier: Apache-2.0
#include "plan/stage/shared_output.hpp"

#include <algorithm>

#include "plan/modules.hpp"
#include "plan/schedule_traits.hpp"
#include "sim/pipeline/pass_inputs.hpp"

namespace orrery::plan {

namespace {

using costmodel::MemoryKernel;
using sim::CommKind;

// Bytes an element of the shard's logits and of the hidden state, beyond the loss and the products
// of one device with the whole layer.
struct ShardTraffic {
  double logits_forward;
  double logits_backward;
  double hidden_forward;
  double hidden_backward;
};
constexpr double kHiddenCopies = 8 + 6;  // cut out of the broadcast, cast to 16 bits
constexpr double kRescaled = 8;          // softmax in fp32, in place
// One barrier: cast of the softmax (6); row of the target's weight (4), masked (2), scale (4) and
// difference (6) of the two parts of the input gradient, an empty gradient for autograd (2).
constexpr double kStatisticsPerToken = 2 * 4.0;  // maximum and sum, fp32
constexpr ShardTraffic kOneBarrier = {6, kRescaled, kHiddenCopies + 4 + 2 + 4 + 6, 2};
constexpr ShardTraffic kTwoBarriers = {0, kRescaled, kHiddenCopies, 0};

double local_tokens(const Plan& plan, const Slice& slice) {
  const std::int64_t length = slice.is_whole() ? plan.sequence : slice.tokens;
  return static_cast<double>(plan.micro_batch * length) / plan.blocks.front().layout.cp;
}

// Of the vocabulary that the fullest rank of all stages holds.
double local_vocabulary(const Plan& plan) {
  const BlockPlan& layout = plan.blocks.front().layout;
  const std::int64_t vocab = plan.network.spec.vocab;
  if (layout.tensor_shares.empty()) {
    return static_cast<double>(vocab) / (plan.pp * layout.tp);
  }
  const TensorShares all = layout.tensor_shares.repeated(plan.pp);
  return static_cast<double>(share_extent(all, all.largest(), {models::Var::Vocab, vocab}, vocab));
}

// Tensor ranks that have a part each of the hidden state between blocks; one where all have it.
int ranks_of_stream(const Plan& plan) {
  const BlockPlan& layout = plan.blocks.front().layout;
  const bool cut = layout.sequence_parallel || layout.tensor_parallel != TensorMesh::OneD;
  return cut ? layout.tp : 1;
}

Bytes whole_bytes(const Plan& plan, double hidden_elements) {
  return Bytes(hidden_elements * element_bytes(models::Element::Compute, plan.precision));
}

// The boundary between stages.
Bytes stream_bytes(const Plan& plan, double hidden_elements) {
  return whole_bytes(plan, hidden_elements) / static_cast<double>(ranks_of_stream(plan));
}

// Collectives of all stages; nothing for one.
class StageGroup {
 public:
  StageGroup(const Plan& plan, const BlockCosts& costs)
      : costs_(costs),
        group_(costmodel::make_group(plan.pp, ranks_of_stage(plan), plan.cluster.node.gpus)) {}
  Seconds time(CommKind kind, Bytes bytes) const {
    return group_.ranks == 1
               ? Seconds()
               : costs_.scaled(group_, costs_.collectives().time(kind, bytes, group_));
  }

 private:
  static int ranks_of_stage(const Plan& plan) {
    const BlockPlan& layout = plan.blocks.front().layout;
    return layout.tp * layout.cp * plan.dp;
  }
  const BlockCosts& costs_;
  costmodel::GroupShape group_;
};

double hidden_elements(const Plan& plan, const Slice& slice) {
  return local_tokens(plan, slice) * static_cast<double>(plan.network.spec.hidden);
}

Bytes statistics_bytes(const Plan& plan, const Slice& slice) {
  return Bytes(local_tokens(plan, slice) * kStatisticsPerToken);
}

// Of the tensor ranks of a stage, whose shards of the vocabulary are parts of the stage's.
std::vector<ShardCollective> tensor_collectives(const Plan& plan, models::BlockKind kind,
                                                const Slice& slice) {
  using sim::PassKind;
  if (plan.blocks.front().layout.tp == 1 || !plan.execution.vocab_parallel) {
    return {};
  }
  const Bytes whole = whole_bytes(plan, hidden_elements(plan, slice));
  const bool cut = ranks_of_stream(plan) > 1;
  const CommKind sum = cut ? CommKind::ReduceScatter : CommKind::AllReduce;
  std::vector<ShardCollective> list;
  const auto add = [&](PassKind pass, CommKind comm, Bytes bytes, std::string_view of) {
    list.push_back({pass, comm, bytes, of, true});
  };
  if (kind == models::BlockKind::Head) {
    if (cut) {
      add(PassKind::Forward, CommKind::AllGather, whole, "hidden of the last stage");
    }
    add(PassKind::Forward, CommKind::AllReduce, statistics_bytes(plan, slice),
        "statistics of the loss");
    add(PassKind::InputGrad, sum, whole, "gradient of hidden");
    return list;
  }
  add(PassKind::Forward, sum, whole, "token_embedding");
  if (cut && frozen_positions(plan.network) == 0) {
    add(PassKind::InputGrad, CommKind::AllGather, whole, "gradient of token_embedding");
  }
  return list;
}

// Adds what the tensor ranks of a stage wait for to the passes.
void add_tensor_collectives(const Plan& plan, models::BlockKind kind, const BlockCosts& costs,
                            const Slice& slice, ShardTimes& times) {
  const auto group =
      costmodel::make_group(plan.blocks.front().layout.tp, 1, plan.cluster.node.gpus);
  for (const ShardCollective& one : tensor_collectives(plan, kind, slice)) {
    const Seconds time = costs.scaled(group, costs.collectives().time(one.kind, one.bytes, group));
    const bool forward = one.pass == sim::PassKind::Forward;
    (forward ? times.tensor_forward : times.tensor_backward) += time;
    (forward ? times.forward : times.backward) += time;
  }
}

ShardTimes output_beside_stages(const Plan& plan, int barriers, const BlockCosts& costs,
                                const Slice& slice) {
  ShardTimes times;
  if (plan.pp == 1 || barriers == 0) {
    return times;
  }
  const double hidden = hidden_elements(plan, slice);
  const Bytes stream = stream_bytes(plan, hidden);
  const StageGroup group(plan, costs);
  const ShardTraffic& traffic = barriers == 1 ? kOneBarrier : kTwoBarriers;
  const double logits = local_tokens(plan, slice) * local_vocabulary(plan);
  const auto kernels = [&](double bytes) {
    return costs.scaled(CostClass::MemoryBound,
                        costs.device().memory_bound(Bytes(bytes), MemoryKernel::Elementwise));
  };
  const Seconds moving = group.time(CommKind::AllReduce, stream) +
                         group.time(CommKind::Broadcast, hidden_broadcast_bytes(plan, stream));
  times.collectives = moving * collective_demand(costs.device());
  times.forward = kernels(traffic.logits_forward * logits + traffic.hidden_forward * hidden) +
                  times.collectives;
  times.backward = kernels(traffic.logits_backward * logits + traffic.hidden_backward * hidden);
  return times;
}

}  // namespace

ShardTimes shared_output_times(const Plan& plan, int barriers, const BlockCosts& costs,
                               const Slice& slice) {
  ShardTimes times = output_beside_stages(plan, barriers, costs, slice);
  add_tensor_collectives(plan, models::BlockKind::Head, costs, slice, times);
  return times;
}

ShardTimes shared_input_times(const Plan& plan, int barriers, const BlockCosts& costs,
                              const Slice& slice) {
  const Bytes stream = stream_bytes(plan, hidden_elements(plan, slice));
  const StageGroup group(plan, costs);
  const double share = barriers == 0 ? 1.0 : collective_demand(costs.device());
  const Seconds forward = group.time(CommKind::AllReduce, stream) * share;
  const bool trained = frozen_positions(plan.network) == 0;  // else nobody wants its gradient
  const Seconds backward = trained ? group.time(CommKind::Broadcast, stream) * share : Seconds();
  ShardTimes times{forward, backward, forward + backward, {}, {}};
  add_tensor_collectives(plan, models::BlockKind::Embedding, costs, slice, times);
  return times;
}

std::vector<SimTime> shard_latencies(const Plan& plan, const sim::PipelineOrder& order,
                                     Bytes boundary, const BlockCosts& costs) {
  const std::int64_t length =
      plan.slice_tokens.empty()
          ? plan.sequence / plan.slices
          : *std::max_element(plan.slice_tokens.begin(), plan.slice_tokens.end());
  const double tokens =
      static_cast<double>(plan.micro_batch * length) / plan.blocks.front().layout.cp;
  const StageGroup group(plan, costs);
  const SimTime sum = to_sim_time(group.time(CommKind::AllReduce, boundary));
  const SimTime hidden =
      to_sim_time(group.time(CommKind::Broadcast, hidden_broadcast_bytes(plan, boundary)));
  const SimTime statistics =
      to_sim_time(group.time(CommKind::AllReduce, Bytes(tokens * kStatisticsPerToken)));
  const bool beside = schedule_traits(plan).output_barriers > 0;  // of the input layer
  const SimTime looked_up = beside ? sum : SimTime{};
  const bool trained = frozen_positions(plan.network) == 0;
  const SimTime gradient =
      beside && trained ? to_sim_time(group.time(CommKind::Broadcast, boundary)) : SimTime{};
  const sim::PassInputs inputs(order);
  std::vector<SimTime> latencies;
  for (const sim::Edge& edge : order.edges) {
    const sim::Role from = inputs.role(edge.from);
    const sim::Role to = inputs.role(edge.to);
    latencies.push_back(from == sim::Role::Input    ? looked_up
                        : to == sim::Role::Input    ? gradient
                        : from == sim::Role::Layers ? hidden
                        : to == sim::Role::Layers   ? sum
                                                    : statistics);
  }
  return latencies;
}

std::vector<ShardCollective> shard_collectives(const Plan& plan, models::BlockKind kind,
                                               const Slice& slice) {
  using sim::PassKind;
  std::vector<ShardCollective> list = tensor_collectives(plan, kind, slice);
  if (plan.pp == 1) {
    return list;
  }
  const Bytes stream = stream_bytes(plan, hidden_elements(plan, slice));
  const auto add = [&](PassKind pass, CommKind comm, Bytes bytes, std::string_view of) {
    list.push_back({pass, comm, bytes, of});
  };
  if (kind == models::BlockKind::Head) {
    add(PassKind::Forward, CommKind::Broadcast, hidden_broadcast_bytes(plan, stream),
        "hidden of the last stage");
    add(PassKind::Forward, CommKind::AllReduce, statistics_bytes(plan, slice),
        "statistics of the loss");
    add(PassKind::InputGrad, CommKind::AllReduce, stream, "gradient of hidden");
    return list;
  }
  add(PassKind::Forward, CommKind::AllReduce, stream, "token_embedding");
  if (frozen_positions(plan.network) == 0) {  // else nobody wants its gradient
    add(PassKind::InputGrad, CommKind::Broadcast, stream, "gradient of token_embedding");
  }
  return list;
}

Bytes hidden_broadcast_bytes(const Plan& plan, Bytes boundary) {
  if (schedule_traits(plan).output_barriers == 0) {
    return boundary;
  }
  const int width = element_bytes(models::Element::Compute, plan.precision);
  const auto hidden = static_cast<double>(plan.network.spec.hidden);
  return Bytes(boundary.value() / width * 4.0 * (1.0 + 1.0 / hidden));
}

}  // namespace orrery::plan
