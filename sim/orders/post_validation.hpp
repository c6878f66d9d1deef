// SPDX-License-Identifier: Apache-2.0
// Several iterations of a synchronous order without a meeting of all devices at the update (Qi et
// al., Zero Bubble Pipeline Parallelism, ICLR 2024, section 4 and its published code): the state of
// the gradients (norm, whether they are finite) travels forward along the devices, each of which
// updates with what has arrived and begins its next iteration. The whole state travels back in the
// next warm-up. A device that should have updated otherwise (the norm calls for clipping, a
// gradient is not finite) takes its update back, makes it again and runs the forwards of the
// iteration again that it had begun (ScheduleParams::rollbacks). Messages and checks take no time
// but the transfers'.
#pragma once

#include <string>
#include <vector>

#include "sim/schedule.hpp"

namespace orrery::sim {

// ScheduleParams::iterations runs of `order`, which is one chain of whole units on the devices of
// its lists; with one or none given, `order` as it is. `shared`: virtual stages that share a table,
// whose gradients are added up on a service behind the other lists: when all of them have run their
// last gradient of an iteration, beside the weight gradients that are left (the fork's
// core/weight_grad_store.py, clear). Their devices wait for the sum before they update. The service
// is the forward of the virtual stage behind those of the state.
PipelineOrder with_post_validation(PipelineOrder order, const ScheduleParams& params,
                                   const std::vector<int>& shared = {});

// Few enough passes of all iterations.
Refusal check_validated_iterations(const ScheduleParams& params);

}  // namespace orrery::sim
