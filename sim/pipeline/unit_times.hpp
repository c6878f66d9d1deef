// SPDX-License-Identifier: Apache-2.0
// Durations of single units (PipelineCosts::unit_forward and its like), for those that change some.
#pragma once

#include "sim/pipeline/pipeline.hpp"

namespace orrery::sim {

// Gives every one of `units` units the durations of its virtual stage, of passes whose units have
// none of their own yet. O(virtual stages x units).
void give_units_times(int units, PipelineCosts& costs);

// Of an order of several equal iterations: what is added to the first forward and the last gradient
// of a virtual stage is added in each of them. O(passes + virtual stages x iterations).
void end_every_iteration(const PipelineOrder& order, PipelineCosts& costs);

}  // namespace orrery::sim
