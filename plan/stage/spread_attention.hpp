// SPDX-License-Identifier: Apache-2.0
// Schedules that spread a layer's attention over all devices (`helixpipe`) in plans. A virtual
// stage is one layer; embedding and head are on the first device. The schedule runs a layer's
// passes in three: before attention and after it on the layer's device or the next one, attention
// on a device that the micro-batch decides. Times are those of the cost model's steps on each side
// of attention. To attention travel queries, keys, values and the residual stream, from it the
// result and the stream. Where weights are shipped (Execution::ships_weights), the product that
// makes queries, keys and values runs beside attention: its input, the stream and its weights
// travel, in the backward their gradients (megatron/core/pipeline_parallel/attn_pipe_schedule.py of
// the published code, transfer_weight). All micro-batches are held until the backwards, which run
// in reverse; layers are equal, so that a device keeps of attention what it would keep of its own
// layers. Source: HelixPipe (arXiv 2507.00394), section 4.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/stage/stage.hpp"
#include "sim/pipeline/pipeline.hpp"

namespace orrery::plan {

// "" when the plan's layers and layout suit its schedule, else the smallest change.
std::string spread_attention_problem(const Plan& plan);

// Weights of other devices' layers on a device, a copy for each layer and micro-batch from the
// forward to the backward, and the gradient of one; nothing where none are shipped.
ByteCount shipped_weights(const Plan& plan);

// Puts the head beside the embedding.
void join_ends(const Plan& plan, std::vector<StageContent>& stages);

// The device of every virtual stage of the plan: as in the order, or of the layers.
std::vector<std::uint16_t> devices_of_stages(const Plan& plan, const sim::PipelineOrder& order);

// Passes of all virtual stages of the order.
sim::PipelineCosts spread_passes(const Plan& plan, const sim::PipelineOrder& order,
                                 const std::vector<StageCost>& stages, BlockCosts& costs);

// Puts the last backwards of layers in place of those of their parts.
void tell_layers(const Plan& plan, sim::PipelineResult& result);

// What devices hold and when, in passes of whole layers.
sim::PipelineOrder layers_in_turn(const Plan& plan);

}  // namespace orrery::plan
