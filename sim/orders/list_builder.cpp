// SPDX-License-Identifier: Apache-2.0
#include "sim/orders/list_builder.hpp"

#include <algorithm>
#include <utility>

#include "sim/pipeline/pipeline.hpp"

namespace orrery::sim {
namespace {

// At least so many of eight bytes, an odd number of cache lines: the same place in each of many
// rows is then not the same place in the cache, as it would be with powers of two.
std::size_t spread(std::size_t least) { return (least + 7) / 8 * 8 | 8; }

// As of evaluate_pipeline: all passes and transfers one after the other stay within the clock.
void check_range(const PipelineOrder& order, const ScheduleParams& params) {
  double time = 0.0;
  for (std::size_t s = 0; s < order.device_of.size(); ++s) {
    const PassTimes& of = params.times_of(s);
    const SimTime cut = of.input_grad + of.weight_grad;
    for (const SimTime each : {of.forward, std::max(of.backward(), cut), of.send, of.send}) {
      time += static_cast<double>(each.ps);
    }
  }
  check_longest_run(time * order.micro_batches);
}

}  // namespace

ScheduleParams with_stage_times(const PipelineOrder& order, const ScheduleParams& params) {
  ScheduleParams timed = params;
  const auto stages = static_cast<std::size_t>(order.num_virtual_stages);
  if (params.times.size() == stages || order.parts.empty()) {
    return timed;
  }
  const int most = *std::max_element(order.parts.begin(), order.parts.end());
  timed.times.clear();
  for (std::size_t s = 0; s < stages; ++s) {
    const bool given = params.times.size() <= 1 || s < params.times.size();
    const PassTimes& of = params.times_of(given ? s : 0);
    const int parts = order.parts[s];
    timed.times.push_back({of.forward * parts, of.input_grad * parts, of.weight_grad * parts,
                           of.send * most, of.whole * parts});
  }
  return timed;
}

ListBuilder::ListBuilder(PipelineOrder skeleton, const ScheduleParams& params, bool splits_backward,
                         Asks asks)
    : order_(std::move(skeleton)),
      inputs_(order_),
      splits_backward_(splits_backward),
      decides_all_(params.decides_all),
      stride_(spread(static_cast<std::size_t>(order_.micro_batches) + 1)),
      keeps_weight_grads_(
          std::any_of(order_.edges.begin(), order_.edges.end(),
                      [](const Edge& edge) { return edge.from_lane == Lane::WeightGrad; })),
      fills_(asks == Asks::Any || order_.slices > 1 || !order_.edges.empty()),
      num_ends_((index(keeps_weight_grads_ ? 3 : 2) * index(order_.num_virtual_stages) + 2) *
                stride_),
      end_(new std::int64_t[num_ends_]),
      devices_(order_.passes.size()),
      stages_on_(order_.passes.size()) {
  check_range(order_, params);
  for (int s = 0; s < order_.num_virtual_stages; ++s) {
    stages_on_[order_.device_of[index(s)]].push_back(s);
    equal_units_ = equal_units_ && units(s) == units(0);
    facts_.push_back(facts_of(order_, inputs_, params, index(s)));
  }
  forget_ends();
  for (int s = 0; s < order_.num_virtual_stages; ++s) {
    for (const Lane lane : {Lane::Forward, Lane::Gradient, Lane::WeightGrad}) {
      lanes_.push_back(lane_of_stage(lane, s));
    }
  }
  for (std::size_t d = 0; d < order_.passes.size(); ++d) {
    std::size_t most = 0;
    for (const int s : stages_on_[d]) {
      most += index(units(s)) * (splits_backward ? 3 : 2);
    }
    order_.passes[d].reserve(spread(most));
  }
}

void ListBuilder::forget_ends() {
  const std::size_t nothing = num_ends_ - stride_;
  for (std::size_t row = 0; row < nothing; row += stride_) {
    std::fill_n(&end_[row], fills_ ? stride_ : 1, -1);
  }
  std::fill_n(&end_[nothing], stride_, 0);
}

void ListBuilder::restart() {
  for (std::vector<Pass>& list : order_.passes) {
    list.clear();
  }
  forget_ends();
  std::fill(devices_.begin(), devices_.end(), Device{});
  for (LaneState& lane : lanes_) {
    lane.next.micro_batch = 0;
  }
  max_bubble_ = 0;
  bubble_holder_ = 0;
  bubble_holders_ = 0;
}

ListBuilder::Facts ListBuilder::facts_of(const PipelineOrder& order, const PassInputs& inputs,
                                         const ScheduleParams& params, std::size_t stage) {
  Facts facts;
  const PassTimes& times = params.times_of(stage);
  const auto kind = [](PassKind of) { return static_cast<std::size_t>(of); };
  facts.duration[kind(PassKind::Forward)] = times.forward.ps;
  facts.duration[kind(PassKind::InputGrad)] = times.input_grad.ps;
  facts.duration[kind(PassKind::WeightGrad)] = times.weight_grad.ps;
  facts.duration[kind(PassKind::Backward)] = times.backward().ps;
  if (inputs.role(stage) == Role::Layers) {
    const std::int64_t all = params.activation_of(stage);
    const std::int64_t left = params.weight_grad_activation_of(stage);
    facts.memory[kind(PassKind::Forward)] = inputs.forward_only(stage) ? 0 : all;
    facts.memory[kind(PassKind::InputGrad)] = left - all;
    facts.memory[kind(PassKind::WeightGrad)] = -left;
    facts.memory[kind(PassKind::Backward)] = -all;
  }
  if (!inputs.is_last(stage) && order.device_of[stage + 1] != order.device_of[stage]) {
    facts.send_after = times.send.ps;
  }
  facts.send = times.send.ps;
  return facts;
}

ListBuilder::LaneState ListBuilder::lane_of_stage(Lane lane, int stage) const {
  const auto number_of = [this](Lane of, int at) {
    return static_cast<std::size_t>(of) * index(order_.num_virtual_stages) + index(at);
  };
  const auto row_of = [&](Lane of, int at) {
    const bool kept = of != Lane::WeightGrad || keeps_weight_grads_;
    return kept ? number_of(of, at) * stride_ : num_ends_ - 2 * stride_;
  };
  const std::size_t nothing = num_ends_ - stride_;
  LaneState of{.row = row_of(lane, stage), .own = nothing, .neighbour = nothing};
  of.next = pass_of(lane, stage, 0);
  of.duration = duration(of.next);
  of.memory = memory_change(of.next);
  const bool has_gradients = !inputs_.forward_only(index(stage));
  if (lane == Lane::Forward ||
      (has_gradients && (lane == Lane::Gradient || cuts_backward(stage)))) {
    of.units = inputs_.units(index(stage));
  }
  of.device = order_.device_of[index(stage)];
  of.has_edges = !inputs_.edges_to(number_of(lane, stage)).empty();
  if (lane != Lane::Forward) {
    of.own = row_of(lane == Lane::WeightGrad ? Lane::Gradient : Lane::Forward, stage);
  }
  if (lane == Lane::Forward && !inputs_.is_first(index(stage))) {
    of.neighbour = row_of(lane, stage - 1);
    of.send = facts_[index(stage - 1)].send_after;
  } else if (lane == Lane::Gradient && !inputs_.is_last(index(stage))) {
    of.neighbour = row_of(lane, stage + 1);
    of.send = facts_[index(stage)].send_after;
  }
  return of;
}

std::int64_t ListBuilder::arrival_over_edges(const Pass& pass, std::int64_t at) const {
  const std::size_t stage = pass.virtual_stage;
  const bool complete = inputs_.for_each_edge(pass, [&](const PassInput& input) {
    const std::int64_t end = end_of(input.lane, input.virtual_stage, static_cast<int>(input.unit));
    const bool crosses = order_.device_of[input.virtual_stage] != order_.device_of[stage];
    const std::size_t sender = std::min<std::size_t>(input.virtual_stage, stage);
    at = std::max(at, end + (crosses ? facts_[sender].send : 0));
    return end >= 0;
  });
  return complete ? at : kNever;
}

std::int64_t ListBuilder::next_arrival_over_edges(std::size_t lane, std::int64_t at) const {
  const Pass pass = next(static_cast<Lane>(lane % kLanes), static_cast<int>(lane / kLanes));
  return arrival_over_edges(pass, at);
}

std::int64_t ListBuilder::soonest_reach() const {
  std::int64_t soonest = soonest_reach_in_chains();
  for (const Edge& edge : order_.edges) {
    if (lanes_[number(edge.from_lane, edge.from)].units > 0) {
      soonest = std::min(soonest, duration(next(edge.from_lane, edge.from)));
    }
  }
  return soonest;
}

std::int64_t ListBuilder::soonest_reach_in_chains() const {
  std::int64_t soonest = kNever;
  const auto consider = [&](Lane lane, int stage, std::int64_t send) {
    if (lanes_[number(lane, stage)].units > 0) {
      soonest = std::min(soonest, duration(next(lane, stage)) + send);
    }
  };
  for (int s = 0; s + 1 < order_.num_virtual_stages; ++s) {
    if (!inputs_.is_last(index(s)) &&
        order_.device_of[index(s)] != order_.device_of[index(s + 1)]) {
      consider(Lane::Forward, s, facts_[index(s)].send_after);
      consider(Lane::Gradient, s + 1, facts_[index(s)].send_after);
    }
  }
  return soonest;
}

std::int64_t ListBuilder::longest_span() const {
  std::int64_t longest = 0;
  for (const Device& device : devices_) {
    longest = std::max(longest, device.free - device.first_start);
  }
  return longest;
}

}  // namespace orrery::sim
