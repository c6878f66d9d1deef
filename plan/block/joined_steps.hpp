// SPDX-License-Identifier: Apache-2.0
// A forward and a backward of different micro-batches that run as one (DualPipe: DeepSeek-V3
// Technical Report, arXiv 2412.19437, section 3.2.1): while tokens of one travel to their experts
// or back, kernels of the other run. Collectives between experts run on the communication stream;
// kernels and all other collectives, which nothing hides, take turns. Each pass keeps the order of
// its own steps, but for weight gradients, which wait for nobody and fill gaps (section 3.2.1;
// Megatron-LM's --delay-wgrad-compute); of both, what can start first goes first, of equals what
// leads to an exchange soonest, so that the other pass has kernels beside it.
// Kernels slow down beside a collective as the profile says: the kernels that send tokens hold few
// multiprocessors of their own (20 of 132, section 3.2.2 there). Deterministic; O(steps).
#pragma once

#include <vector>

#include "base/sim_time.hpp"
#include "plan/block/steps.hpp"

namespace orrery::plan {

// One list of two that follow one another: a recomputation and its backward, or two layers.
std::vector<Step> in_turn(std::vector<Step> first, const std::vector<Step>& then);

// Of the steps' times as they are.
struct JoinedPasses {
  SimTime time;     // the device's, for both
  SimTime exposed;  // in which tokens travel and nothing else runs
};
JoinedPasses join_passes(const std::vector<Step>& forward, const std::vector<Step>& backward,
                         const costmodel::DeviceModel& device);

}  // namespace orrery::plan
