// SPDX-License-Identifier: Apache-2.0
#include "plan/stage/shared_output.hpp"

#include "plan/schedule_traits.hpp"

namespace orrery::plan {

namespace {

using costmodel::MemoryKernel;
using sim::CommKind;

// Bytes an element of the shard's logits and of the hidden state, beyond the loss and the products
// of one device with the whole layer.
struct Traffic {
  double logits_forward;
  double logits_backward;
  double hidden_forward;
  double hidden_backward;
};
constexpr double kHiddenCopies = 8 + 6;  // cut out of the broadcast, cast to 16 bits
constexpr double kRescaled = 8;          // softmax in fp32, in place
// One barrier: cast of the softmax (6); row of the target's weight (4), masked (2), scale (4) and
// difference (6) of the two parts of the input gradient, an empty gradient for autograd (2).
constexpr Traffic kOneBarrier = {6, kRescaled, kHiddenCopies + 4 + 2 + 4 + 6, 2};
constexpr Traffic kTwoBarriers = {0, kRescaled, kHiddenCopies, 0};

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

// The boundary between stages.
Bytes stream_bytes(const Plan& plan, double hidden_elements) {
  const BlockPlan& layout = plan.blocks.front().layout;
  const int ranks = layout.sequence_parallel ? layout.tp : 1;
  const int width = element_bytes(models::Element::Compute, plan.precision);
  return Bytes(hidden_elements / ranks * width);
}

}  // namespace

SharedOutputTimes shared_output_times(const Plan& plan, int barriers, const BlockCosts& costs,
                                      const Slice& slice) {
  SharedOutputTimes times;
  if (plan.pp == 1) {
    return times;
  }
  const BlockPlan& layout = plan.blocks.front().layout;
  const auto group =
      costmodel::make_group(plan.pp, layout.tp * layout.cp * plan.dp, plan.cluster.node.gpus);
  const auto collective = [&](CommKind kind, Bytes bytes) {
    return costs.scaled(group, costs.collectives().time(kind, bytes, group));
  };
  const double tokens = local_tokens(plan, slice);
  const double hidden = tokens * static_cast<double>(plan.network.spec.hidden);
  const Bytes stream = stream_bytes(plan, hidden);
  const Seconds sum = collective(CommKind::AllReduce, stream);
  const Seconds broadcast = collective(CommKind::Broadcast, stream);
  if (barriers == 0) {
    return {sum, broadcast};
  }
  const Traffic& traffic = barriers == 1 ? kOneBarrier : kTwoBarriers;
  const double logits = tokens * local_vocabulary(plan);
  const auto kernels = [&](double bytes) {
    return costs.scaled(CostClass::MemoryBound,
                        costs.device().memory_bound(Bytes(bytes), MemoryKernel::Elementwise));
  };
  // Of the input layer and of the barriers: two sums, two broadcasts.
  const Seconds moving =
      sum * 2.0 + broadcast + collective(CommKind::Broadcast, hidden_broadcast_bytes(plan, stream));
  times.forward = kernels(traffic.logits_forward * logits + traffic.hidden_forward * hidden) +
                  moving * collective_demand(costs.device());
  times.backward = kernels(traffic.logits_backward * logits + traffic.hidden_backward * hidden);
  return times;
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
