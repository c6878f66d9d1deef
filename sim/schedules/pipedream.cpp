// SPDX-License-Identifier: Apache-2.0
// Every backward is followed by an update of its stage; its forward used the same parameters, of
// which stage i therefore keeps p - i versions. Staleness p - 1 - i; no idle time in steady state.
#include "sim/orders/asynchronous.hpp"
#include "sim/schedule.hpp"

namespace orrery::sim {
namespace {

std::string check(const ScheduleParams& params) { return check_without_flush(params, 1); }

PipelineOrder order(const ScheduleParams& params) {
  return without_flush(params, 1, Versions::Stashed);
}

double most(const ScheduleParams& params) { return params.stages; }

}  // namespace

extern const Schedule schedule_pipedream = {
    .name = "pipedream",
    .description = "1F1B without flush, an update per micro-batch, weights stashed",
    .constraints = "asynchronous; 1 chunk per device",
    .source = "Narayanan et al., PipeDream, SOSP 2019 (arXiv 1806.03377), section 3.3",
    .splits_backward = false,
    .uses_chunks = false,
    .synchronous = false,
    .check = check,
    .order = order,
    .most_activations = most,
    .in_plans = true,
};

}  // namespace orrery::sim
