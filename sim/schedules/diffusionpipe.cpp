// SPDX-License-Identifier: Apache-2.0
// A trained backbone as 1f1b, and frozen encoders of the next iteration in its idle times
// (sim/orders/frozen_portions.hpp), so that it is never delayed.
#include "sim/orders/frozen_portions.hpp"
#include "sim/orders/order_blocks.hpp"
#include "sim/schedule.hpp"

namespace orrery::sim {
namespace {

PipelineOrder order(const ScheduleParams& params) {
  PipelineOrder backbone = bare_order(params.stages, 1);
  add_chain(backbone, loop_placement(params), {.units = params.micro_batches});
  ScheduleParams alone = params;
  alone.slices = 1;
  backbone.passes = find_schedule("1f1b", "diffusionpipe").order(alone).passes;
  return with_frozen_portions(backbone, params);
}

}  // namespace

extern const Schedule schedule_diffusionpipe = {
    .name = "diffusionpipe",
    .description = "1f1b with frozen layers of the next iteration in its idle times",
    .constraints =
        "1 chunk per device; slices: portions of the frozen layers per micro-batch, "
        "with micro-batches at least stages",
    .source = "Tian et al., DiffusionPipe, MLSys 2024 (arXiv 2405.01248), bubble filling",
    .traits = {.uses_slices = true, .uses_times = true, .fills_frozen = true},
    .check = check_frozen_portions,
    .order = order,
    .most_activations = one_per_stage,
    .in_plans = true,
    .in_search = true,
};

}  // namespace orrery::sim
