// SPDX-License-Identifier: Apache-2.0
// One longest path through the passes of a pipeline, as counts: its length is a lower bound on the
// makespan for every other duration of the passes, too. It may end before the last pass, where more
// follows. For orders of chains without attachments (sim/schedule.hpp); joined passes count
// together. O(passes).
#pragma once

#include <cstddef>
#include <vector>

#include "sim/pipeline/pipeline.hpp"

namespace orrery::search {

struct PassPath {
  // By virtual stage: passes of each kind on the path.
  std::vector<double> forwards;
  std::vector<double> backwards;
  std::vector<double> input_grads;
  std::vector<double> weight_grads;
  std::vector<double> sends;   // transfers from virtual stage s to s + 1, or of gradients back
  std::vector<bool> firsts;    // whether a stage's first forward is on the path
  std::vector<bool> finals;    // and the last pass that gives it gradients
  double seconds = 0;          // until its last pass ends
  std::size_t last_stage = 0;  // of its last pass
  bool ends_stage = false;     // which is the last one that gives this stage gradients
};

// `costs` may have extras of first forwards and last gradients. The longest with what follows the
// last gradients of a stage, `behind` by virtual stage (empty: nothing).
PassPath longest_path(const sim::PipelineOrder& order, const sim::PipelineCosts& costs,
                      const std::vector<SimTime>& behind = {});

// By virtual stage: the others of its device whose gradients are ready later, in list order.
std::vector<std::vector<std::size_t>> reduced_later(const sim::PipelineOrder& order);

}  // namespace orrery::search
