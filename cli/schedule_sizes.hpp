// SPDX-License-Identifier: Apache-2.0
// The numbers that `orrery schedule` runs with: as given, and where left out those that the
// schedule needs.
#pragma once

#include <string>
#include <vector>

#include "cli/schedule_options.hpp"
#include "sim/orders/schedule_document.hpp"
#include "sim/schedule.hpp"

namespace orrery::cli {

sim::PassTimes share_of(const ScheduleOptions& options);
sim::ScheduleParams params_of(const ScheduleOptions& options);
sim::ScheduleDocument read_document(const std::string& name);

// The options with the numbers that lists in a file, the first of several, were written for; what
// was given stays.
ScheduleOptions with_listed_sizes(ScheduleOptions options);
// The options with the fewest chunks that make the schedule one of its own and, where whole
// sequences do not run, a slice a stage; what was given stays.
ScheduleOptions fewest_pieces(const std::string& name, ScheduleOptions options);
// Whether the activations of a registered schedule, or of one written in a file, are fixed, so that
// no cap bounds them.
bool fixes_activations(const std::string& name);
// In a comparison slices, chunks and a cap are meant for the schedules that have some.
ScheduleOptions compared_options(const std::string& name, ScheduleOptions options);
// Under a comparison: the names that its cap does not bound, if any.
std::string cap_note(const std::vector<std::string>& unbounded);

// "4 stages, 8 micro-batches", and ", 2 chunks, 4 slices": what is more than one.
std::string sizes_text(const ScheduleOptions& options);
std::string pieces_of(const ScheduleOptions& options);

}  // namespace orrery::cli
