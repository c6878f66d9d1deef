// SPDX-License-Identifier: Apache-2.0
// Two trained backbones of a cascade, one in each direction over the same devices, each with all
// micro-batches, in the slots of chimera; frozen encoders of the next iteration in their idle times
// (sim/orders/frozen_portions.hpp). A device's share of either backbone takes as long.
#include "sim/orders/bidirectional.hpp"
#include "sim/orders/frozen_portions.hpp"
#include "sim/schedule.hpp"

namespace orrery::sim {
namespace {

std::string check(const ScheduleParams& params) {
  return first_broken({check_frozen_portions(params), check_even_stages(params),
                       check_multiple(params, params.stages / 2, "half the stages")});
}

PipelineOrder order(const ScheduleParams& params) {
  ScheduleParams both = params;
  both.micro_batches *= 2;
  return with_frozen_portions(chimera_order(both, 1), params);
}

}  // namespace

extern const Schedule schedule_diffusionpipe_cascaded = {
    .name = "diffusionpipe-cascaded",
    .description = "two backbones in opposite directions with frozen layers in their idle times",
    .constraints =
        "1 chunk per device; stages even; micro-batches a multiple of half the stages; slices: "
        "portions of the frozen layers per micro-batch",
    .source = "Tian et al., DiffusionPipe, MLSys 2024 (arXiv 2405.01248), cascaded models",
    .splits_backward = false,
    .uses_chunks = false,
    .synchronous = true,
    .check = check,
    .order = order,
    .most_activations = one_per_stage,
    .uses_slices = true,
    .uses_times = true,
    .needs = "two trained backbones in one network",
};

}  // namespace orrery::sim
