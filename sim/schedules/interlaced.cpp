// SPDX-License-Identifier: Apache-2.0
// The output layer cut over all devices, which run its passes and their collectives at the same
// time and wait for each other. On 1f1b 1.5 p activations on the first stage; on v-half, whose
// slots are all of one length, no more than without.
#include <utility>

#include "sim/orders/input_layer.hpp"
#include "sim/orders/order_blocks.hpp"
#include "sim/orders/output_layer.hpp"
#include "sim/schedule.hpp"

namespace orrery::sim {
namespace {

PipelineOrder on_one_chunk(const ScheduleParams& params) {
  const int p = params.stages;
  const int m = params.micro_batches;
  PipelineOrder result = output_layer_skeleton(empty_order(params, loop_placement(params), 2), 2);
  for (int i = 0; i < p; ++i) {
    const int after = p - 1 - i;
    const auto add = [&](PassKind kind, int stage, int j) {
      if (j >= 0 && j < m) {
        add_pass(result, kind, stage, j);
      }
    };
    for (int j = 0; j <= after / 2; ++j) {
      add(PassKind::Forward, i, j);
    }
    // Between two output layers every stage runs one backward and one forward; neighbours in turn
    // begin with one or the other, so that two forwards follow each other in one window.
    for (int window = 0; window < m + after; ++window) {
      add(PassKind::Forward, p + i, window);
      add(PassKind::Backward, p + i, window);
      if (after % 2 == 1) {
        add(PassKind::Forward, i, window + 1 + after / 2);
      }
      add(PassKind::Backward, i, window - after);
      if (after % 2 == 0) {
        add(PassKind::Forward, i, window + 1 + after / 2);
      }
    }
  }
  return with_input_layer(std::move(result), PassKind::Backward);
}

PipelineOrder order(const ScheduleParams& params) {
  return params.chunks == 2 ? with_interlaced_vocabulary(vocabulary_base(params, 0))
                            : on_one_chunk(params);
}

double most(const ScheduleParams& params) {
  return params.chunks == 2 ? (params.stages + 2) / 2 : 1.5 * params.stages;
}

}  // namespace

extern const Schedule schedule_interlaced = {
    .name = "interlaced",
    .description = "output layer over all stages, all together (on 1f1b or v-half)",
    .constraints = "1 chunk (1f1b) or 2 chunks (v-half) per device",
    .source =
        "Yeung et al., Vocabulary Parallelism, MLSys 2025 (arXiv 2411.05288), section 2; Lin et "
        "al., nnScaler, OSDI 2024",
    .traits = {.uses_chunks = true, .uses_times = true, .shares_output_layer = true},
    .check = check_vocabulary,
    .order = order,
    .most_activations = most,
    .own_with_one_chunk = true,
    .in_plans = true,
    .in_search = true,
};

}  // namespace orrery::sim
