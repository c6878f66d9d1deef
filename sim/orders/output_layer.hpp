// SPDX-License-Identifier: Apache-2.0
// Vocabulary parallelism (Yeung et al., MLSys 2025): output and input layer are cut over all
// pipeline devices. Every micro-batch runs, on every device, a pass S (logits of the shard) after
// its last forward and a pass T (gradients of the shard) after all S have met. The last virtual
// stage's backward waits for all S (one barrier, algorithm 2) or for all T (two barriers, algorithm
// 1). The passes are inserted into the lists of a base order, whose own passes keep their order: S
// as soon as it can run, T before the next S. Then come those of the input layer
// (sim/orders/input_layer.hpp).
#pragma once

#include <string>
#include <string_view>

#include "sim/schedule.hpp"

namespace orrery::sim {

// `base` is one chain without edges, of micro-batches or slices. Virtual stages V .. V + p - 1 are
// the output layer's shards: forward S, fused backward T. By default a whole output layer weighs as
// much as the layers of one device. The next p are those of the input layer.
PipelineOrder with_vocabulary(const PipelineOrder& base, const ScheduleParams& params,
                              int barriers);
// The same with S and T of a micro-batch on all devices at once, for a base whose backwards are
// cut: with passes of one length each, all stop when a micro-batch's last forward ends. Activations
// are those of the base.
PipelineOrder with_interlaced_vocabulary(const PipelineOrder& base);
// With the output layer alone, and without passes.
PipelineOrder output_layer_skeleton(const PipelineOrder& base, int barriers);

// 1F1B on one chunk, V-Half on two, with `extra` micro-batches more in flight.
PipelineOrder vocabulary_base(const ScheduleParams& params, int extra);
Refusal check_vocabulary(const ScheduleParams& params);

// The schedule on that base with so many barriers, each hidden by a micro-batch more in flight.
template <int barriers>
constexpr Schedule vocabulary_schedule(std::string_view name, std::string_view description,
                                       std::string_view source) {
  return {
      .name = name,
      .description = description,
      .constraints = "1 chunk (1f1b) or 2 chunks (v-half) per device",
      .source = source,
      .traits = {.uses_chunks = true,
                 .uses_times = true,
                 .shares_output_layer = true,
                 .output_barriers = barriers},
      .check = check_vocabulary,
      .order =
          [](const ScheduleParams& params) {
            return with_vocabulary(vocabulary_base(params, barriers), params, barriers);
          },
      .most_activations =
          [](const ScheduleParams& params) {
            const int base = params.chunks == 2 ? (params.stages + 2) / 2 : params.stages;
            return static_cast<double>(base + barriers);
          },
      .own_with_one_chunk = true,
      .in_plans = true,
      .in_search = true,
  };
}

}  // namespace orrery::sim
