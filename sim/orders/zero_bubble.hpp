// SPDX-License-Identifier: Apache-2.0
// Zero-bubble orders with a split backward. Hand-made: warm-up forwards, then backward, weight
// gradient (late by `delay`) and forward in turn. Automatic: the list heuristic of Qi et al. (ICLR
// 2024, section 3.1 and appendix) under a cap of activations, with three flags of which all eight
// combinations are tried; the shortest longest-stage span wins. O(8 p m).
#pragma once

#include <cstdint>
#include <string>

#include "sim/schedule.hpp"

namespace orrery::sim {

// Stage i runs warm_up(i) forwards ahead; its weight gradients are delay(i) backwards late.
template <typename WarmUp, typename Delay>
PipelineOrder late_weight_grads(const ScheduleParams& params, WarmUp warm_up, Delay delay) {
  PipelineOrder order = empty_order(params, loop_placement(params), 3);
  const int m = params.micro_batches;
  for (int i = 0; i < params.stages; ++i) {
    auto& list = order.passes[static_cast<std::size_t>(i)];
    const auto stage = static_cast<std::uint16_t>(i);
    const auto add = [&](PassKind kind, int j) {
      if (j >= 0 && j < m) {
        list.push_back({kind, stage, static_cast<std::uint32_t>(j)});
      }
    };
    const int ahead = std::min(warm_up(i), m);
    const int late = std::min(delay(i), m);
    append_all(list, PassKind::Forward, i, ahead);
    for (int j = 0; j < m; ++j) {
      add(PassKind::InputGrad, j);
      add(PassKind::WeightGrad, j - late);
      add(PassKind::Forward, j + ahead);
    }
    for (int j = m - late; j < m; ++j) {
      add(PassKind::WeightGrad, j);
    }
  }
  return order;
}

// Of hand-made orders: one chunk and no cap.
Refusal check_hand_made(const ScheduleParams& params);

// Of automatic ones: one chunk, and a cap of at least one micro-batch.
Refusal check_automatic(const ScheduleParams& params);

// `cap` in units of params.activation.
PipelineOrder automatic_zero_bubble(const ScheduleParams& params, std::int64_t cap);

// Activations of params.cap micro-batches, or of `own` without a cap.
std::int64_t cap_of(const ScheduleParams& params, double own);
// That on a zigzag every device has room for one micro-batch, however unequal its activations, with
// `own` micro-batches of room where there is no cap. Else nothing could ever finish.
Refusal check_one_fits(const ScheduleParams& params, double own);

}  // namespace orrery::sim
