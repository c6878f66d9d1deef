// SPDX-License-Identifier: Apache-2.0
#include "plan/mixed/pipeline.hpp"
#include "plan/simulation/report.hpp"
#include "plan/stage/listed_passes.hpp"

namespace orrery::plan {

TimeBreakdown MixedPipeline::breakdown(const sim::PipelineOrder& order,
                                       const sim::PipelineResult& result, std::size_t device) {
  count_cut_backwards(order, stages_);
  return passes_breakdown(front().view, stages_, sends_, device_of_, result, device,
                          kind_of_device(device).costs);
}

}  // namespace orrery::plan
