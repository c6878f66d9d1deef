// SPDX-License-Identifier: Apache-2.0
// The order of interleaved 1F1B: device i holds chunks c p + i; micro-batches travel in groups, one
// chunk after the other (Narayanan et al., Megatron-LM, SC 2021, arXiv 2104.04473, section 2.2, in
// groups of p).
#pragma once

#include <string>

#include "sim/schedule.hpp"

namespace orrery::sim {

// What the order cannot do with these parameters; empty if nothing.
Refusal check_interleaved(const ScheduleParams& params);

// Micro-batches of a group where p does not divide them: the least from p on that leaves a last
// group of none or of p at least; all of them, where there are fewer than devices.
int uneven_group(int stages, int micro_batches);

// `group`: micro-batches that take a chunk one behind the other; the last group may be smaller.
// `joins`: one more forward ahead, so that a forward and the backward after it, of different
// micro-batches, run as one block (Megatron-LM, combined_1f1b.py).
PipelineOrder interleaved_order(const ScheduleParams& params, int group, bool joins);

}  // namespace orrery::sim
