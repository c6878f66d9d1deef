// SPDX-License-Identifier: Apache-2.0
// Forwards and backwards of a mini-batch use one predicted copy of the parameters beside the live
// ones, whatever the number of stages. The first of its micro-batches predicts it, on every stage
// but the last, where no update lies between a forward and the mini-batch's own.
#include "sim/orders/asynchronous.hpp"
#include "sim/schedule.hpp"

namespace orrery::sim {
namespace {

Refusal check(const ScheduleParams& params) { return check_without_flush(params, 1); }

PipelineOrder order(const ScheduleParams& params) {
  return without_flush(params, params.micro_batches, Versions::Predicted);
}

double most(const ScheduleParams& params) { return params.stages; }

}  // namespace

extern const Schedule schedule_xpipe = {
    .name = "xpipe",
    .description = "1F1B without flush, an update per mini-batch, predicted weights",
    .constraints = "asynchronous; 1 chunk per device; a prediction takes time (--prediction)",
    .source = "Guan et al., XPipe, 2019 (arXiv 1911.04610), section 3",
    .traits = {.synchronous = false, .predicts_weights = true},
    .check = check,
    .order = order,
    .most_activations = most,
    .in_plans = true,
};

}  // namespace orrery::sim
