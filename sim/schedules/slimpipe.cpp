// SPDX-License-Identifier: Apache-2.0
// Slices travel in groups through the chunks; a micro-batch goes back in the reverse of its forward
// order, which frees keys and values as they are used up. Idle (p - 1) passes of a slice and chunk
// each way; 1 + 2 (p - 1) / (n v) micro-batches of activations on the first device.
#include <fmt/format.h>

#include "sim/orders/order_blocks.hpp"
#include "sim/schedule.hpp"

namespace orrery::sim {
namespace {

std::string check(const ScheduleParams& params) {
  return first_broken({check_sizes(params), check_equal_slices(params), check_no_cap(params),
                       check_one_replica(params), check_own_iterations(params),
                       check_own_warm_up(params),
                       params.slices >= params.stages
                           ? ""
                           : fmt::format("at least {} slices are required, one per stage, not {}: "
                                         "set slices to {}",
                                         params.stages, params.slices, params.stages)});
}

PipelineOrder order(const ScheduleParams& params) {
  const int p = params.stages;
  const int n = params.slices;
  const int v = params.chunks;
  int group = p;
  while (n % group != 0) {
    ++group;
  }
  PipelineOrder result = one_chain(params, loop_placement(params), 2);
  for (int device = 0; device < p; ++device) {
    // The k-th pass of a micro-batch: groups of slices, one chunk after the other.
    const auto pass = [&](PassKind kind, int j, int k) {
      const int chunk = k % (group * v) / group;
      const int slice = k / (group * v) * group + k % group;
      return Pass{kind, static_cast<std::uint16_t>(chunk * p + device),
                  static_cast<std::uint32_t>(j * n + slice)};
    };
    const int per_batch = n * v;
    const int ahead = per_batch + (v > 1 ? 2 : 1) * (p - 1 - device);
    append_one_forward_one_backward(
        result.passes[static_cast<std::size_t>(device)], params.micro_batches * per_batch, ahead,
        [&](int k) { return pass(PassKind::Forward, k / per_batch, k % per_batch); },
        [&](int k) {
          return pass(PassKind::Backward, k / per_batch, per_batch - 1 - k % per_batch);
        });
  }
  return result;
}

double most(const ScheduleParams& params) {
  const int pieces = params.slices * params.chunks;
  return 1 + (params.chunks > 1 ? 2.0 : 1.0) * (params.stages - 1) / pieces;
}

}  // namespace

extern const Schedule schedule_slimpipe = {
    .name = "slimpipe",
    .description = "1F1B over uniform slices and chunks, last in, first out",
    .constraints = "slices at least stages",
    .source = "Li et al., SlimPipe, SC 2025 (arXiv 2504.14519), section 4",
    .splits_backward = false,
    .uses_chunks = true,
    .synchronous = true,
    .check = check,
    .order = order,
    .most_activations = most,
    .uses_slices = true,
    .shares_attention = true,
    .in_plans = true,
    .in_search = true,
};

}  // namespace orrery::sim
