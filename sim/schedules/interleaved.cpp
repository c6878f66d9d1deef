// SPDX-License-Identifier: Apache-2.0
// Interleaved 1F1B: device i holds chunks c p + i; micro-batches travel in groups of p, one chunk
// after the other. Idle (p - 1)(F + Bf) / v without latency, for p (1 + (p - 1) / (p v))
// activations on the first device and v times the transfers.
#include "sim/schedule.hpp"

namespace orrery::sim {
namespace {

std::string check(const ScheduleParams& params) {
  return first_broken(
      {check_basics(params), check_own_warm_up(params), check_multiple_of_stages(params)});
}

PipelineOrder order(const ScheduleParams& params) {
  const int p = params.stages;
  const int v = params.chunks;
  PipelineOrder result = empty_order(params, loop_placement(params), 2);
  for (int device = 0; device < p; ++device) {
    const auto pass = [&](PassKind kind, int chunk, int k) {
      return Pass{kind, static_cast<std::uint16_t>(chunk * p + device),
                  static_cast<std::uint32_t>(k / (p * v) * p + k % p)};
    };
    const int ahead = 2 * (p - device - 1) + (v - 1) * p + 1;
    append_one_forward_one_backward(
        result.passes[static_cast<std::size_t>(device)], params.micro_batches * v, ahead,
        [&](int k) { return pass(PassKind::Forward, k % (p * v) / p, k); },
        [&](int k) { return pass(PassKind::Backward, v - 1 - k % (p * v) / p, k); });
  }
  return result;
}

double most(const ScheduleParams& params) {
  return params.stages + static_cast<double>(params.stages - 1) / params.chunks;
}

}  // namespace

extern const Schedule schedule_interleaved = {
    .name = "interleaved",
    .description = "1F1B over several model chunks per device, in groups of p micro-batches",
    .constraints = "micro-batches a multiple of stages",
    .source = "Narayanan et al., Megatron-LM, SC 2021 (arXiv 2104.04473), section 2.2",
    .splits_backward = false,
    .uses_chunks = true,
    .synchronous = true,
    .check = check,
    .order = order,
    .most_activations = most,
    .in_plans = true,
    .in_search = true,
};

}  // namespace orrery::sim
