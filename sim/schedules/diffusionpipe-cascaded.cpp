// SPDX-License-Identifier: Apache-2.0
// Two trained backbones of a cascade, one in each direction over the same devices, each with all
// micro-batches, in the slots of chimera: a device's first chunk is a stage of the one, its second
// of the other; frozen encoders of the next iteration in their idle times
// (sim/orders/frozen_portions.hpp). A device's share of either backbone takes as long.
#include "sim/orders/bidirectional.hpp"
#include "sim/orders/frozen_portions.hpp"
#include "sim/schedule.hpp"

namespace orrery::sim {
namespace {

Refusal check(const ScheduleParams& params) {
  ScheduleParams one = params;
  one.chunks = 1;
  return first_broken({check_chunks(params, 2), check_frozen_portions(one),
                       check_even_stages(params),
                       check_multiple(params, params.stages / 2, "half the stages")});
}

PipelineOrder order(const ScheduleParams& params) {
  ScheduleParams both = params;
  both.micro_batches *= 2;
  PipelineOrder backbones = chimera_order(both, 1);
  backbones.chains[1].first_unit = 0;  // both have the same micro-batches
  return with_frozen_portions(backbones, params);
}

double most(const ScheduleParams& params) { return params.stages / 2.0; }

}  // namespace

extern const Schedule schedule_diffusionpipe_cascaded = {
    .name = "diffusionpipe-cascaded",
    .description = "two backbones in opposite directions with frozen layers in their idle times",
    .constraints =
        "2 chunks per device, one of either backbone; stages even; micro-batches a multiple of "
        "half the stages; slices: portions of the frozen layers per micro-batch",
    .source = "Tian et al., DiffusionPipe, MLSys 2024 (arXiv 2405.01248), cascaded models",
    .traits = {.uses_chunks = true,
               .uses_slices = true,
               .uses_times = true,
               .fills_frozen = true,
               .cascades = true},
    .check = check,
    .order = order,
    .most_activations = most,
    .in_plans = true,
    .in_search = true,
};

}  // namespace orrery::sim
