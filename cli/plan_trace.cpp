// SPDX-License-Identifier: Apache-2.0
#include "cli/plan_trace.hpp"

#include <fmt/format.h>

#include "base/error.hpp"
#include "plan/simulate.hpp"
#include "plan/stage.hpp"
#include "plan/step_end.hpp"
#include "traces/adapters.hpp"

namespace orrery::cli {
namespace {

constexpr std::int64_t kMaxPassesOfTrace = 2'000'000;

// What the trace shows beside the passes: bytes per chunk and the end of the step.
struct Details {
  sim::PipelineCosts activations;  // only the bytes are set
  plan::StepEnd end;
};

Details details_of(const plan::Plan& plan, const sim::PipelineOrder& order,
                   const sim::PipelineResult& pipeline) {
  Details details;
  plan::BlockCosts costs(plan);
  std::vector<plan::StageCost> stages;
  for (const plan::StageContent& content : plan::stage_contents(plan)) {
    stages.push_back(plan::simulate_stage(content, plan, costs));
    details.activations.activation.push_back(stages.back().saved + stages.back().saved_ends);
  }
  details.end = plan::close_step(plan, stages, order.device_of, pipeline, costs);
  return details;
}

// Passes, then the gradient reduction that was not hidden, the optimizer and exposed gathers.
void add_step_end(const sim::PipelineResult& pipeline, const plan::StepEnd& end,
                  traces::Trace& trace) {
  for (std::uint32_t device = 0; device < pipeline.devices.size(); ++device) {
    const std::uint32_t track = trace.add_track(device, "step end");
    SimTime at = pipeline.devices[device].last_end;
    const auto add = [&](const char* name, const char* category, SimTime until) {
      if (until > at) {
        trace.spans.push_back(
            {.track = track, .start = at, .end = until, .name = name, .category = category, .args = {}});
        at = until;
      }
    };
    add("until all gradients are reduced", "communication", end.gradients_ready);
    add("optimizer", "optimizer", at + to_sim_time(end.optimizer));
    add("parameter gather", "communication", end.iteration);
  }
}

}  // namespace

std::string plan_trace_text(const plan::Plan& plan) {
  const std::int64_t passes = 2 * plan.num_micro_batches() * plan.pp * plan.chunks;
  if (passes > kMaxPassesOfTrace) {
    bad_input("--trace", fmt::format("an iteration of {} passes is too long to draw", passes),
              fmt::format("at most {}", kMaxPassesOfTrace));
  }
  const plan::Simulation simulation = plan::simulate(plan, {.record_spans = true});
  const sim::ScheduleParams params{plan.pp, static_cast<int>(plan.num_micro_batches()), plan.chunks,
                                   0};
  const sim::PipelineOrder order = sim::find_schedule(plan.schedule, "schedule").order(params);
  const Details details = details_of(plan, order, simulation.pipeline);

  traces::PipelineTraceOptions options;
  options.costs = &details.activations;
  for (const plan::StageMemory& memory : simulation.memory) {
    options.resident.push_back(memory.total() - memory.activations - memory.ends);
  }
  traces::Trace trace = traces::trace_of(order, simulation.pipeline, options);
  add_step_end(simulation.pipeline, details.end, trace);
  return traces::chrome_trace_text(trace);
}

}  // namespace orrery::cli
