// SPDX-License-Identifier: Apache-2.0
// What follows the last backward pass: the rest of the gradient reduction, the sum of tied
// embeddings over the devices that hold them, the optimizer and parameter gathers that do not
// overlap. Devices meet at the gradient norm, so the slowest counts.
#pragma once

#include <vector>

#include "plan/stage/stage.hpp"
#include "sim/pipeline/pipeline.hpp"

namespace orrery::plan {

struct StepEnd {
  SimTime iteration;
  SimTime gradients_ready;  // on the slowest device
  Seconds optimizer;
  Seconds tied_embedding;
  Seconds copies;  // sum of the gradients of two copies of the model, when there are two
  Seconds parameter_gather;
};

// `contents` and `stages` are of the same virtual stages, on the devices of `device_of`.
StepEnd close_step(const Plan& plan, const std::vector<StageContent>& contents,
                   const std::vector<StageCost>& stages,
                   const std::vector<std::uint16_t>& device_of, const sim::PipelineResult& pipeline,
                   BlockCosts& costs);

// A prediction of a stage's parameters from Adam's moments (XPipe): parameters and both moments are
// read, the copy that passes use is written, and gathered where states are sharded.
SimTime prediction_time(const Plan& plan, const StageCost& stage, const BlockCosts& costs);

// Two copies of every stage in opposite directions: device d and the d-th from the end hold the
// same two stages and add up their gradients, after the reduction over data ranks.
Seconds copies_time(const Plan& plan, const std::vector<StageCost>& stages,
                    const std::vector<std::uint16_t>& device_of, BlockCosts& costs);

// Of so many parameters on the device that has most; what they send.
Bytes gradients_of_copy(const Plan& plan, double parameters);
Seconds copies_time(const Plan& plan, double parameters, const BlockCosts& costs);

// Whether no block's optimizer is on the host or the disk.
bool updates_on_device(const Plan& plan);
// The optimizer on the device with most parameters. Adam reads gradient, master copy and moments
// and writes master copy, moments and the parameter. Before it the framework goes over the whole
// gradient buffer `gradient_passes` times.
Seconds optimizer_time(const Plan& plan, const std::vector<StageCost>& stages,
                       const std::vector<std::uint16_t>& device_of, const BlockCosts& costs);
// The same of a device with so many parameters, on this rank, and such a gradient buffer.
Seconds optimizer_time(const Plan& plan, std::int64_t parameters, ByteCount gradient_buffer,
                       const BlockCosts& costs);
// A virtual stage that updates by itself: on the device, and on its host unless the host's update
// runs beside the next step.
Seconds update_time(const Plan& plan, const StageCost& stage, const BlockCosts& costs);

}  // namespace orrery::plan
