// SPDX-License-Identifier: Apache-2.0
// `orrery schedule` on the plan of a recommendation network, which runs nestpipe alone.
#pragma once

#include <string>
#include <vector>

#include "cli/schedule_plan.hpp"

namespace orrery::cli {

// Draws the batches that were run; the request is empty or names nestpipe.
int schedule_on_recommender(const PlanDocument& document, const studies::ScheduleRequest& request,
                            const PictureFiles& files, const OutputOptions& output);
// Beside the same step without a schedule; every request names nestpipe.
int compare_on_recommender(const PlanDocument& document,
                           const std::vector<studies::ScheduleRequest>& requests,
                           const OutputOptions& output);

}  // namespace orrery::cli
