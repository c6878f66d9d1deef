// SPDX-License-Identifier: Apache-2.0
// A pipeline run as a picture in SVG: one row per device, one box per pass, labelled with its
// micro-batch where there is room (each box says its pass when pointed at); passes of one block
// touch without a gap. Rows of replicated stages say which stage their device holds. A long title
// is broken into lines.
#pragma once

#include <string>
#include <vector>

#include "sim/pipeline/pipeline.hpp"

namespace orrery::sim {

// `result` must have been evaluated with record_spans. `time_divisor`: of the times on the axis,
// for runs on multiplied costs. `lists`: what the rows are, where their order does not say it;
// none, or one of each.
std::string schedule_svg(const PipelineOrder& order, const PipelineResult& result,
                         const std::string& title, double time_divisor,
                         const std::vector<std::string>& lists = {});

// One run of a comparison; all that it points at outlives the call.
struct SchedulePanel {
  const PipelineOrder* order = nullptr;
  const PipelineResult* result = nullptr;  // with spans
  std::string title;
  double time_divisor = 1.0;
  bool synchronous = true;
  std::vector<std::string> lists = {};  // as of schedule_svg
};

// Several runs, one below the other. Synchronous ones share one time axis, so that lengths compare;
// asynchronous ones have another, as their runs are as long as steadiness takes.
std::string schedules_svg(const std::vector<SchedulePanel>& panels, const std::string& title);

}  // namespace orrery::sim
