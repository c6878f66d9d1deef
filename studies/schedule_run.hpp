// SPDX-License-Identifier: Apache-2.0
// One pipeline schedule on the costs of a device share, and what people ask of it: time, bubble,
// activations, transfers, and for asynchronous schedules staleness, weight versions and the steady
// period. `orrery schedule` and headlines print the same figures.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.hpp"
#include "sim/pipeline/pipeline.hpp"
#include "sim/pipeline/share_costs.hpp"
#include "sim/pipeline/versions.hpp"
#include "sim/schedule.hpp"

namespace orrery::studies {

// Under a table of bubbles.
inline constexpr const char* kBubbleNote =
    "bubble: idle share of the stage that waits most, from its first to its last pass\n";
// Under one with asynchronous schedules.
inline constexpr const char* kAsynchronousNote =
    "asynchronous: gradients are up to `staleness` updates late, so that times are not those of "
    "the "
    "same training\nas a synchronous schedule's, nor as those of another staleness\n";
// Under one of some schedules that run shards of an output layer and some that do not.
inline constexpr const char* kOutputLayerNote =
    "output layer: run beside the layers by schedules that cut it, left out of the others' costs\n";

struct ScheduleMeasures {
  int iterations = 1;
  double makespan = 0;  // seconds, of all iterations
  double bubble_fraction = 0;
  std::vector<std::string_view> lists;              // sim/pipeline/list_name.hpp, per device
  std::vector<double> idle;                         // seconds, per device
  std::vector<double> peak_activations;             // micro-batches, per device
  std::vector<std::int64_t> peak_activation_bytes;  // per device; empty where no bytes are given
  std::int64_t transfers = 0;       // between devices, activations and gradients of an iteration
  sim::VersionUseOfStage versions;  // of asynchronous schedules
  double steady_period = 0;         // seconds per micro-batch; 0: not known
  double iteration_period = 0;      // seconds, of several synchronous iterations; 0: not known
};

struct ScheduleRun {
  sim::PipelineResult result;
  double scale = 1;  // times in `result` are so many times longer
  bool has_spans = false;
  ScheduleMeasures measures;
};

// Spans are recorded of so many passes at most.
inline constexpr std::int64_t kMaxPassesWithSpans = 200'000;

// Asynchronous schedules record their spans in any case, as long as they are few enough to keep:
// the steady period is read from them.
// Units of a share's times are arbitrary: smaller where the run would leave the range of times.
ScheduleRun run_schedule(const sim::PipelineOrder& order, bool synchronous, sim::PassTimes share,
                         bool with_spans);
// The same with costs of its own for every stage, `scale` times longer than they are.
ScheduleRun run_schedule(const sim::PipelineOrder& order, bool synchronous,
                         const sim::PipelineCosts& costs, std::int64_t scale, bool with_spans);

// Of a run that was made elsewhere: `result`, `scale` and `has_spans` are read.
ScheduleMeasures measure_schedule(const sim::PipelineOrder& order, bool synchronous,
                                  const ScheduleRun& run);

// The members that `orrery schedule --json` prints; asynchronous schedules have three more.
Json::Object to_json(const ScheduleMeasures& measures, bool synchronous);

}  // namespace orrery::studies
