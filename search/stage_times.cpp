// SPDX-License-Identifier: Apache-2.0
#include "search/stage_times.hpp"

namespace orrery::search {

StageTimes stage_times(plan::Simulator& simulator, plan::Plan plan) {
  plan.schedule = "1f1b";
  plan.schedule_document = nullptr;
  plan.batch = plan.micro_batch * plan.dp;
  const plan::Simulation one = simulator.run(plan);
  plan.batch *= 2;
  const plan::Simulation two = simulator.run(plan);
  StageTimes times;
  times.all = to_seconds(one.pipeline.makespan);
  times.slowest = to_seconds(two.pipeline.makespan) - times.all;
  for (const auto& [kind, time] : one.breakdown.exposed_communication) {
    times.communication += kind == "pp" ? Seconds() : time;
  }
  return times;
}

}  // namespace orrery::search
