// SPDX-License-Identifier: Apache-2.0
#include "sim/list_builder.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"

namespace orrery::sim {

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
    timed.times.push_back(
        {of.forward * parts, of.input_grad * parts, of.weight_grad * parts, of.send * most});
  }
  return timed;
}

ListBuilder::ListBuilder(PipelineOrder skeleton, const ScheduleParams& params, bool splits_backward)
    : order_(std::move(skeleton)),
      inputs_(order_),
      params_(params),
      splits_backward_(splits_backward),
      stride_(static_cast<std::size_t>(order_.micro_batches)),
      done_(kNumLanes * index(order_.num_virtual_stages), 0),
      end_((splits_backward ? 3 : 2) * index(order_.num_virtual_stages) * stride_, -1),
      free_(order_.passes.size(), 0),
      first_start_(order_.passes.size(), -1),
      bubble_(order_.passes.size(), 0),
      memory_(order_.passes.size(), 0),
      stages_on_(order_.passes.size()) {
  for (int s = 0; s < order_.num_virtual_stages; ++s) {
    stages_on_[order_.device_of[index(s)]].push_back(s);
  }
}

Pass ListBuilder::next(Lane lane, int stage) const {
  PassKind kind = PassKind::Forward;
  if (lane == Lane::Gradient) {
    kind = splits_backward_ ? PassKind::InputGrad : PassKind::Backward;
  } else if (lane == Lane::WeightGrad) {
    kind = PassKind::WeightGrad;
  }
  return {kind, static_cast<std::uint16_t>(stage), static_cast<std::uint32_t>(done(lane, stage))};
}

std::optional<std::int64_t> ListBuilder::arrival(const Pass& pass) const {
  const Lane lane = lane_of(pass.kind);
  const std::size_t here = index(pass.virtual_stage) * stride_ + pass.micro_batch;
  const std::size_t lane_size = index(order_.num_virtual_stages) * stride_;
  std::int64_t at = 0;
  if (lane != Lane::Forward) {  // what it needs of its own virtual stage
    at = end_[(lane == Lane::WeightGrad ? lane_size : 0) + here];
  }
  inputs_.for_each(pass, [&](const PassInput& input) {
    const std::int64_t end = end_[number(input.lane, input.virtual_stage) * stride_ + input.unit];
    const bool crosses =
        order_.device_of[input.virtual_stage] != order_.device_of[pass.virtual_stage];
    const std::size_t sender = std::min<std::size_t>(input.virtual_stage, pass.virtual_stage);
    const std::int64_t send = crosses ? params_.times_of(sender).send.ps : 0;
    at = end < 0 || at < 0 ? -1 : std::max(at, end + send);
  });
  return at < 0 ? std::nullopt : std::optional(at);
}

std::int64_t ListBuilder::duration(const Pass& pass) const {
  const PassTimes& times = params_.times_of(pass.virtual_stage);
  switch (pass.kind) {
    case PassKind::Forward:
      return times.forward.ps;
    case PassKind::InputGrad:
      return times.input_grad.ps;
    case PassKind::WeightGrad:
      return times.weight_grad.ps;
    default:
      return times.input_grad.ps + times.weight_grad.ps;
  }
}

std::int64_t ListBuilder::memory_change(const Pass& pass) const {
  if (inputs_.role(pass.virtual_stage) != Role::Layers) {
    return 0;
  }
  switch (pass.kind) {
    case PassKind::Forward:
      return inputs_.forward_only(pass.virtual_stage) ? 0
                                                      : params_.activation_of(pass.virtual_stage);
    case PassKind::InputGrad:
      return params_.weight_grad_activation_of(pass.virtual_stage) -
             params_.activation_of(pass.virtual_stage);
    case PassKind::WeightGrad:
      return -params_.weight_grad_activation_of(pass.virtual_stage);
    default:
      return -params_.activation_of(pass.virtual_stage);
  }
}

void ListBuilder::put(const Pass& pass) {
  const std::size_t device = order_.device_of[pass.virtual_stage];
  const Lane lane = lane_of(pass.kind);
  const std::optional<std::int64_t> ready = arrival(pass);
  ORRERY_CHECK(ready.has_value(), "a pass before its inputs");
  const std::int64_t start = std::max(free_[device], *ready);
  if (first_start_[device] < 0) {
    first_start_[device] = start;
  } else {
    bubble_[device] += start - free_[device];
    max_bubble_ = std::max(max_bubble_, bubble_[device]);
  }
  free_[device] = start + duration(pass);
  end_[number(lane, pass.virtual_stage) * stride_ + pass.micro_batch] = free_[device];
  memory_[device] += memory_change(pass);
  ++done_[number(lane, pass.virtual_stage)];
  order_.passes[device].push_back(pass);
}

std::int64_t ListBuilder::longest_span() const {
  std::int64_t longest = 0;
  for (std::size_t device = 0; device < free_.size(); ++device) {
    longest = std::max(longest, free_[device] - first_start_[device]);
  }
  return longest;
}

}  // namespace orrery::sim
