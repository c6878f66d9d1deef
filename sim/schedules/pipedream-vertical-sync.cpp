// SPDX-License-Identifier: Apache-2.0
// PipeDream with vertical sync: a micro-batch uses on every stage the version of the parameters
// that it found on the first one. Staleness p - 1 and p versions on all stages.
#include "sim/orders/asynchronous.hpp"
#include "sim/schedule.hpp"

namespace orrery::sim {
namespace {

Refusal check(const ScheduleParams& params) { return check_without_flush(params, 1); }

PipelineOrder order(const ScheduleParams& params) {
  return without_flush(params, 1, Versions::InputStage);
}

double most(const ScheduleParams& params) { return params.stages; }

}  // namespace

extern const Schedule schedule_pipedream_vertical_sync = {
    .name = "pipedream-vertical-sync",
    .description =
        "1F1B without flush, an update per micro-batch, one version of weights for all stages",
    .constraints = "asynchronous; 1 chunk per device",
    .source = "Narayanan et al., PipeDream, SOSP 2019 (arXiv 1806.03377), section 3.3",
    .traits = {.synchronous = false},
    .check = check,
    .order = order,
    .most_activations = most,
    .in_plans = true,
};

}  // namespace orrery::sim
