// SPDX-License-Identifier: Apache-2.0
// The output layer cut over all devices, with two barriers per micro-batch that hide behind two
// micro-batches more in flight: p + 2 activations on the first stage of 1f1b.
#include "sim/orders/output_layer.hpp"
#include "sim/schedule.hpp"

namespace orrery::sim {
namespace {

constexpr int kBarriers = 2;

std::string check(const ScheduleParams& params) { return first_broken({check_vocabulary(params)}); }

PipelineOrder order(const ScheduleParams& params) {
  return with_output_layer(vocabulary_base(params, kBarriers), params, kBarriers);
}

double most(const ScheduleParams& params) {
  return (params.chunks == 2 ? (params.stages + 2) / 2 : params.stages) + 2;
}

}  // namespace

extern const Schedule schedule_vocab_1 = {
    .name = "vocab-1",
    .description = "output layer over all stages, two barriers (on 1f1b or v-half)",
    .constraints = "1 chunk (1f1b) or 2 chunks (v-half) per device",
    .source =
        "Yeung et al., Vocabulary Parallelism, MLSys 2025 (arXiv 2411.05288), section 4, algorithm "
        "1",
    .splits_backward = false,
    .uses_chunks = true,
    .synchronous = true,
    .check = check,
    .order = order,
    .most_activations = most,
    .uses_times = true,
    .shares_output_layer = true,
    .output_barriers = kBarriers,
    .own_with_one_chunk = true,
    .in_plans = true,
    .in_search = true,
};

}  // namespace orrery::sim
