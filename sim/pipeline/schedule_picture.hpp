// SPDX-License-Identifier: Apache-2.0
// A pipeline run as text: one row per device, one column per unit of time. A forward shows the
// digits of its micro-batch, a backward (fused or input-grad) the same number in the letters a-j, a
// weight-grad in A-J, '-' fills up a pass and '.' is idle time. Other passes (output layer,
// recompute, optimizer, frozen layers, services) begin with a letter, which the last line explains.
// The column is the largest time that divides every start and end; when the picture would be wider
// than asked, columns get longer and each shows the pass that runs at its middle.
#pragma once

#include <string>
#include <vector>

#include "sim/pipeline/pipeline.hpp"

namespace orrery::sim {

struct PictureOptions {
  int width = 120;                       // columns of time at most, at least 1
  bool whole_lines = false;              // `width` is that of lines, with the names of rows
  bool color = false;                    // ANSI background by kind of pass, brighter for odd chunks
  double time_divisor = 1;               // of the stated column, for runs on multiplied costs
  const PipelineOrder* order = nullptr;  // what was run; none: stages of one chain of layers
  // What the rows are, where the order does not say it.
  std::vector<std::string> lists = {};
};

// `result` must have been evaluated with record_spans.
std::string schedule_picture(const PipelineResult& result, const PictureOptions& options = {});

}  // namespace orrery::sim
