// SPDX-License-Identifier: Apache-2.0
// What pictures and tables call the lists of a schedule.
#pragma once

#include <string>
#include <vector>

#include "sim/schedule.hpp"

namespace orrery::cli {

// What the lists of a schedule are where its order does not say it: the streams of a worker of
// nestpipe, one virtual stage each; without a plan there are several workers, those of the model's
// stages first. None for other schedules.
std::vector<std::string> list_names(const std::string& schedule, const sim::PipelineOrder& order);

}  // namespace orrery::cli
