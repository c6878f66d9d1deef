// SPDX-License-Identifier: Apache-2.0
// `orrery schedule` on a real plan (--plan) and on given pass times (--costs).
#pragma once

#include <string>
#include <vector>

#include "cli/command/common.hpp"
#include "cli/schedule_pictures.hpp"
#include "studies/plan_schedules.hpp"

namespace orrery::cli {

// Draws one run: picture files as asked, JSON or text with the picture on standard output.
int schedule_on_plan(const std::string& plan_path, const studies::ScheduleRequest& request,
                     const PictureFiles& files, const OutputOptions& output);
// Several schedules on the same plan; asynchronous ones last.
int compare_on_plan(const std::string& plan_path, std::vector<studies::ScheduleRequest> requests,
                    const PictureFiles& files, const OutputOptions& output);

}  // namespace orrery::cli
