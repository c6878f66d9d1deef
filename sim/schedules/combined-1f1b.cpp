// SPDX-License-Identifier: Apache-2.0
// Interleaved 1F1B with one more forward ahead, so that a forward and a backward of different
// micro-batches run as one block: tokens of one travel to their experts beside kernels of the
// other. Idle (p - 1)(F + Bf) / v where nothing is hidden, for p (1 + 1 / v) activations.
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
  result.extended = true;
  for (int device = 0; device < p; ++device) {
    const int ahead = 2 * (p - device - 1) + (v - 1) * p + 1;
    const auto pass = [&](PassKind kind, int chunk, int k) {
      const bool joined = kind == PassKind::Forward && k >= ahead;
      return Pass{kind, static_cast<std::uint16_t>(chunk * p + device),
                  static_cast<std::uint32_t>(k / (p * v) * p + k % p), joined};
    };
    append_one_forward_one_backward(
        result.passes[static_cast<std::size_t>(device)], params.micro_batches * v, ahead + 1,
        [&](int k) { return pass(PassKind::Forward, k % (p * v) / p, k); },
        [&](int k) { return pass(PassKind::Backward, v - 1 - k % (p * v) / p, k); });
  }
  return result;
}

double most(const ScheduleParams& params) { return params.stages * (1 + 1.0 / params.chunks); }

}  // namespace

extern const Schedule schedule_combined_1f1b = {
    .name = "combined-1f1b",
    .description = "interleaved 1F1B whose forwards and backwards hide each other's communication",
    .constraints = "micro-batches a multiple of stages",
    .source =
        "NVIDIA, Megatron-LM, megatron/core/pipeline_parallel/combined_1f1b.py and "
        "--overlap-moe-expert-parallel-comm",
    .splits_backward = false,
    .uses_chunks = true,
    .synchronous = true,
    .check = check,
    .order = order,
    .most_activations = most,
    .joins_passes = true,
    .for_experts = true,
    .own_with_one_chunk = true,
    .in_plans = true,
    .in_search = true,
};

}  // namespace orrery::sim
