// SPDX-License-Identifier: Apache-2.0
// All micro-batches of a batch use the parameters before the last update: staleness 1, two
// versions.
#include "sim/orders/asynchronous.hpp"
#include "sim/orders/replicated_stages.hpp"
#include "sim/schedule.hpp"

namespace orrery::sim {
namespace {

Refusal check(const ScheduleParams& params) { return check_dealt(params, Least::InFlight); }

PipelineOrder order(const ScheduleParams& params) {
  return dealt_without_flush(params, params.micro_batches, Versions::Delayed);
}

double most(const ScheduleParams& params) { return in_flight(params).front(); }

}  // namespace

extern const Schedule schedule_pipedream_2bw = {
    .name = "pipedream-2bw",
    .description = "1F1B without flush, an update per batch, two versions of the weights",
    .constraints =
        "asynchronous; 1 chunk per device; micro-batches at least stages; replicas by stage, "
        "micro-batches a multiple of all of them",
    .source = "Narayanan et al., PipeDream-2BW, ICML 2021 (arXiv 2006.09503), section 3.1",
    .traits = {.synchronous = false},
    .check = check,
    .order = order,
    .most_activations = most,
    .in_plans = true,
};

}  // namespace orrery::sim
