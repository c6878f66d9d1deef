// SPDX-License-Identifier: Apache-2.0
// Every backward is followed by an update of its stage; its forward used the same parameters, of
// which stage i therefore keeps p - i versions. Staleness p - 1 - i; no idle time in steady state.
// Of a replicated stage each device has a micro-batch of a round; the update follows the round.
#include "sim/orders/asynchronous.hpp"
#include "sim/orders/replicated_stages.hpp"
#include "sim/schedule.hpp"

namespace orrery::sim {
namespace {

Refusal check(const ScheduleParams& params) { return check_dealt(params, Least::One); }

PipelineOrder order(const ScheduleParams& params) {
  return dealt_without_flush(params, 1, Versions::Stashed);
}

double most(const ScheduleParams& params) { return in_flight(params).front(); }

}  // namespace

extern const Schedule schedule_pipedream = {
    .name = "pipedream",
    .description = "1F1B without flush, an update per micro-batch, weights stashed",
    .constraints =
        "asynchronous; 1 chunk per device; replicas by stage, micro-batches a multiple of all of "
        "them",
    .source = "Narayanan et al., PipeDream, SOSP 2019 (arXiv 1806.03377), section 3.3",
    .traits = {.synchronous = false},
    .check = check,
    .order = order,
    .most_activations = most,
    .in_plans = true,
};

}  // namespace orrery::sim
