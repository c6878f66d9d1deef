// SPDX-License-Identifier: Apache-2.0
// The order that the lists of a schedule document (sim/orders/document_lists.hpp) are. O(passes).
#pragma once

#include <string>

#include "sim/orders/document_lists.hpp"
#include "sim/schedule.hpp"

namespace orrery::sim {

// Error, citing `where`, for a pass that is missing, doubled or on a second device, for
// micro-batches that do not stay in a direction and for updates out of turn. Whether the lists run
// is for check_order to say.
PipelineOrder order_of_lists(const ScheduleLists& lists, const ScheduleParams& params,
                             const std::string& where);

// Whether there are two directions that lie on the devices as mirror images.
bool mirrors(const PipelineOrder& order);

}  // namespace orrery::sim
