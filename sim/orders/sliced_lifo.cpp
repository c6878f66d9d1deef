// SPDX-License-Identifier: Apache-2.0
#include "sim/orders/sliced_lifo.hpp"

#include <fmt/format.h>

#include "sim/orders/order_blocks.hpp"

namespace orrery::sim {

Refusal check_sliced_lifo(const ScheduleParams& params) {
  return first_broken({check_sizes(params), check_equal_slices(params), check_no_cap(params),
                       check_one_replica(params), check_own_iterations(params),
                       check_own_warm_up(params),
                       params.slices >= params.stages
                           ? Refusal()
                           : refused(fmt::format("at least {} slices are required, one per stage, "
                                                 "not {}",
                                                 params.stages, params.slices),
                                     Size::Slices, params.stages)});
}

PipelineOrder sliced_lifo(const ScheduleParams& params, int extra) {
  const int p = params.stages;
  const int n = params.slices;
  const int v = params.chunks;
  int group = p;
  while (n % group != 0) {
    ++group;
  }
  PipelineOrder result = one_chain(params, loop_placement(params), 2);
  for (int device = 0; device < p; ++device) {
    const int per_batch = n * v;
    std::vector<Pass> forwards;  // of a micro-batch: groups of slices, one chunk after the other
    for (int k = 0; k < per_batch; ++k) {
      const int chunk = k % (group * v) / group;
      const int slice = k / (group * v) * group + k % group;
      forwards.emplace_back(PassKind::Forward, static_cast<std::uint16_t>(chunk * p + device),
                            static_cast<std::uint32_t>(slice));
    }
    const auto pass = [&](PassKind kind, int j, int k) {
      const Pass& of = forwards[static_cast<std::size_t>(k)];
      return Pass{kind, of.virtual_stage, of.micro_batch + static_cast<std::uint32_t>(j * n)};
    };
    const int ahead = per_batch + (v > 1 ? 2 : 1) * (p - 1 - device) + extra;
    append_one_forward_one_backward(
        result.passes[static_cast<std::size_t>(device)], params.micro_batches * per_batch, ahead,
        [&](int k) { return pass(PassKind::Forward, k / per_batch, k % per_batch); },
        [&](int k) {
          return pass(PassKind::Backward, k / per_batch, per_batch - 1 - k % per_batch);
        });
  }
  return result;
}

}  // namespace orrery::sim
