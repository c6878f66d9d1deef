// SPDX-License-Identifier: Apache-2.0
#include "sim/orders/interleaved.hpp"

namespace orrery::sim {

std::string check_interleaved(const ScheduleParams& params) {
  return first_broken(
      {check_basics(params), check_own_warm_up(params), check_multiple_of_stages(params)});
}

PipelineOrder interleaved_order(const ScheduleParams& params, bool joins) {
  const int p = params.stages;
  const int v = params.chunks;
  PipelineOrder result = empty_order(params, loop_placement(params), 2);
  result.extended = joins;
  for (int device = 0; device < p; ++device) {
    const int ahead = 2 * (p - device - 1) + (v - 1) * p + 1;
    const auto pass = [&](PassKind kind, int chunk, int k) {
      const bool joined = joins && kind == PassKind::Forward && k >= ahead;
      return Pass{kind, static_cast<std::uint16_t>(chunk * p + device),
                  static_cast<std::uint32_t>(k / (p * v) * p + k % p), joined};
    };
    append_one_forward_one_backward(
        result.passes[static_cast<std::size_t>(device)], params.micro_batches * v,
        ahead + (joins ? 1 : 0), [&](int k) { return pass(PassKind::Forward, k % (p * v) / p, k); },
        [&](int k) { return pass(PassKind::Backward, v - 1 - k % (p * v) / p, k); });
  }
  return result;
}

}  // namespace orrery::sim
