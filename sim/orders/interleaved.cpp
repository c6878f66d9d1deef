// SPDX-License-Identifier: Apache-2.0
#include "sim/orders/interleaved.hpp"

#include <algorithm>

namespace orrery::sim {

Refusal check_interleaved(const ScheduleParams& params) {
  return first_broken(
      {check_basics(params), check_own_warm_up(params), check_multiple_of_stages(params)});
}

namespace {

// Which chunk of which micro-batch a device's k-th forward is; its k-th backward takes the chunks
// from the last to the first.
struct Turn {
  int chunk = 0;
  int micro_batch = 0;
};

Turn turn_of(int k, int group, const ScheduleParams& params) {
  const int first = k / (group * params.chunks) * group;
  const int size = std::min(group, params.micro_batches - first);
  const int within = k - first * params.chunks;
  return {within / size, first + within % size};
}

}  // namespace

int uneven_group(int stages, int micro_batches) {
  int group = std::min(stages, micro_batches);
  while (micro_batches % group != 0 && micro_batches % group < stages) {
    ++group;
  }
  return group;
}

PipelineOrder interleaved_order(const ScheduleParams& params, int group, bool joins) {
  const int p = params.stages;
  const int v = params.chunks;
  PipelineOrder result = empty_order(params, loop_placement(params), 2);
  result.extended = joins;
  for (int device = 0; device < p; ++device) {
    const int ahead = 2 * (p - device - 1) + (v - 1) * group + 1;
    const auto pass = [&](PassKind kind, int k) {
      const auto [turn, micro_batch] = turn_of(k, group, params);
      const int chunk = kind == PassKind::Forward ? turn : v - 1 - turn;
      const bool joined = joins && kind == PassKind::Forward && k >= ahead;
      return Pass{kind, static_cast<std::uint16_t>(chunk * p + device),
                  static_cast<std::uint32_t>(micro_batch), joined};
    };
    append_one_forward_one_backward(
        result.passes[static_cast<std::size_t>(device)], params.micro_batches * v,
        ahead + (joins ? 1 : 0), [&](int k) { return pass(PassKind::Forward, k); },
        [&](int k) { return pass(PassKind::Backward, k); });
  }
  return result;
}

}  // namespace orrery::sim
