// SPDX-License-Identifier: Apache-2.0
// Traces of simulations. A program gives one process per device with one track per stream, spans
// with what set their rate, memory counters by category and arrows along transfers; a pipeline
// gives one process per stage with its passes. Linear in nodes and edges (sorting apart).
#pragma once

#include <string>
#include <vector>

#include "sim/engine/engine.hpp"
#include "sim/pipeline/pipeline.hpp"
#include "traces/chrome_trace.hpp"

namespace orrery::traces {

// Nodes that never ran have no span. `device_names` may be empty ("device 3").
Trace trace_of(const sim::Program& program, const sim::Timeline& timeline,
               const std::vector<std::string>& device_names = {});

struct PipelineTraceOptions {
  // For activation counters; its activation sizes may be empty (no counters).
  const sim::PipelineCosts* costs = nullptr;
  std::int64_t time_divisor = 1;         // of all times, for runs on multiplied costs
  std::vector<ByteCount> resident = {};  // per device: parameters, optimizer, ...; may be empty
};

// `result` must have been evaluated with record_spans.
Trace trace_of(const sim::PipelineOrder& order, const sim::PipelineResult& result,
               const PipelineTraceOptions& options = {});

}  // namespace orrery::traces
