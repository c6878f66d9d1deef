// SPDX-License-Identifier: Apache-2.0
// Virtual stages whose micro-batches travel in slices: what each slice costs, what the slices of a
// micro-batch cost together, the passes of every unit, and the bytes that live slices hold.
// SlimPipe shares the attention of the slices that its devices work on at a time (Li et al., SC
// 2025, section 4.2): each takes the mean of all of them, and the queries and results that move are
// taken to hide under it. Memory: a slice holds its activations, keys and values among them, from
// its forward to its backward; the backward of the last slice begins the gradients of the keys and
// values of those before it, which go with their backwards. O(stages x slices); memory O(passes).
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "plan/stage/layout_bounds.hpp"
#include "plan/stage/stage.hpp"
#include "sim/pipeline/pipeline.hpp"

namespace orrery::plan {

using SliceCosts = std::vector<std::vector<StageCost>>;  // by virtual stage and slice

// Empty for a plan without slices. `cost_of` is add_up_stage or simulate_stage.
SliceCosts slice_costs(const Plan& plan, const std::vector<StageContent>& contents,
                       const std::function<StageCost(const StageContent&, const Slice&)>& cost_of);

// Lengthens the passes of slices by what they wait for copies to and from the host.
void add_offload_of_slices(const Plan& plan, const std::vector<StageContent>& contents,
                           BlockCosts& costs, SliceCosts& slices);

// All slices of a micro-batch as one pass; what happens once a step is that of the first slice,
// whose forward begins it and whose backward ends it.
std::vector<StageCost> together(const SliceCosts& slices);

// The first slices, as the stages whose extra times begin and end the step.
std::vector<StageCost> first_slices(const SliceCosts& slices);

// Durations of every unit into `passes`, which were made for the first slices; those of a virtual
// stage become means. Devices that do not
// overlap transfers wait for each.
void add_unit_times(const Plan& plan, const SliceCosts& slices, const std::vector<SimTime>& sends,
                    sim::PipelineCosts& passes);

// The passes of a micro-batch at a virtual stage for pipeline_floor().
StagePasses floor_passes(const Plan& plan, const sim::PipelineCosts& passes, std::size_t stage);

// What the slices alive on a device hold when they hold most: of the layers, of embedding and head,
// and gradients of keys and values; off the device when they hold most there.
struct SlicePeak {
  ByteCount layers;
  ByteCount ends;
  ByteCount gradients;
  ByteCount copied;  // of what is away: in buffers
  ByteCount host;
  ByteCount disk;
  ByteCount total() const { return layers + ends + gradients + copied; }
};
std::vector<SlicePeak> slice_peaks(const sim::PipelineOrder& order, const SliceCosts& slices);

// A unit of a pipeline, where units are not alike: what it costs, by its place among the costs of a
// virtual stage, and the units of its micro-batch.
struct Unit {
  std::uint32_t cost = 0;
  std::uint32_t first = 0;  // unit of its micro-batch
  bool last = true;         // of its micro-batch
};
// The same for any units; `costs` by virtual stage and Unit::cost.
std::vector<SlicePeak> unit_peaks(const sim::PipelineOrder& order, const SliceCosts& costs,
                                  const std::vector<Unit>& units);

}  // namespace orrery::plan
