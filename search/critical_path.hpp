// SPDX-License-Identifier: Apache-2.0
// One longest path through the passes of a pipeline, as counts: its length is a lower bound on the
// makespan for every other duration of the passes, too. For orders of chains without attachments
// (sim/schedule.hpp); joined passes count together. O(passes).
#pragma once

#include <cstddef>
#include <vector>

#include "sim/pipeline.hpp"

namespace orrery::search {

struct PassPath {
  // By virtual stage: passes of each kind on the path.
  std::vector<double> forwards;
  std::vector<double> backwards;
  std::vector<double> input_grads;
  std::vector<double> weight_grads;
  std::vector<double> sends;  // transfers from virtual stage s to s + 1, or of gradients back
  double seconds = 0;
  std::size_t last_stage = 0;  // of its last pass; with a backward or weight gradient the path ends
  bool ends_stage = false;     // when that stage's gradients are ready
};

PassPath longest_path(const sim::PipelineOrder& order, const sim::PipelineCosts& costs);

}  // namespace orrery::search
