// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/trace.hpp"

#include <fmt/format.h>

#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/text.hpp"
#include "plan/flat/flat.hpp"
#include "plan/simulation/simulate.hpp"
#include "plan/stage/stage.hpp"
#include "plan/stage/step_end.hpp"
#include "traces/adapters.hpp"

namespace orrery::cli {
namespace {

constexpr std::int64_t kMaxSpans = 2'000'000;
constexpr std::int64_t kMaxSpansOfAuto = 100'000;

// The gradient reduction that passes did not hide, the optimizer, exposed gathers, and what else
// the next iteration waits for.
void add_step_end(const sim::PipelineResult& pipeline, const plan::StepEnd& end,
                  traces::Trace& trace) {
  for (std::uint32_t device = 0; device < pipeline.devices.size(); ++device) {
    const std::uint32_t track = trace.add_track(device, "step end");
    SimTime at = pipeline.devices[device].last_end;
    const auto add = [&](const char* name, const char* category, SimTime until) {
      if (until > at) {
        trace.spans.push_back({.track = track,
                               .start = at,
                               .end = until,
                               .name = name,
                               .category = category,
                               .args = {}});
        at = until;
      }
    };
    add("until all gradients are reduced", "communication", end.gradients_ready);
    add("optimizer", "optimizer", at + to_sim_time(end.optimizer));
    add("parameter gather", "communication", at + to_sim_time(end.parameter_gather));
    add("until the next iteration may begin", "communication", end.iteration);
  }
}

std::int64_t count_kernels(const plan::Plan& plan) {
  const plan::BlockCosts costs(plan);
  std::int64_t steps = 0;
  for (const plan::StageContent& content : plan::stage_contents(plan)) {
    for (const plan::StagePiece& piece : content) {
      const plan::BlockSteps block = costs.steps_of(piece.block, piece.layout, plan.micro_batch);
      const std::size_t size =
          block.forward.size() + block.recompute.size() + block.backward.size();
      steps += piece.count * static_cast<std::int64_t>(size);
    }
  }
  return steps * plan.num_micro_batches();
}

void check_spans(std::int64_t spans, const char* what) {
  if (spans > kMaxSpans) {
    bad_input("--trace", fmt::format("an iteration of {} {} is too long to draw", spans, what),
              fmt::format("at most {}", kMaxSpans));
  }
}

traces::Trace trace_of_kernels(const plan::Plan& plan) {
  const plan::FlatSimulation flat = plan::simulate_flat(plan);
  std::vector<std::string> names;
  for (int stage = 0; stage < plan.pp; ++stage) {
    names.push_back(fmt::format("stage {}", stage));
  }
  return traces::trace_of(flat.program, flat.timeline, names);
}

traces::Trace trace_of_passes(const plan::Plan& plan) {
  const plan::Simulation simulation = plan::simulate(plan, {.record_spans = true});
  const auto& several = simulation.iterations;
  const sim::PipelineOrder& order = several ? several->order : simulation.order;
  sim::PipelineCosts kept;  // only the bytes are set
  kept.activation = simulation.passes.activation;
  if (!kept.activation.empty()) {
    kept.activation.resize(static_cast<std::size_t>(order.num_virtual_stages));
  }
  traces::PipelineTraceOptions options;
  options.costs = &kept;
  for (const plan::StageMemory& memory : simulation.memory) {
    options.resident.push_back(memory.total() - memory.activations - memory.ends);
  }
  traces::Trace trace =
      traces::trace_of(order, several ? several->pipeline : simulation.pipeline, options);
  if (simulation.end) {
    add_step_end(simulation.pipeline, *simulation.end, trace);
  }
  return trace;
}

// Of Auto: what is drawn, and the remark about it.
std::pair<TraceDetail, std::string> choose_detail(const plan::Plan& plan) {
  if (const std::optional<std::string> reason = plan::why_not_flat(plan)) {
    return {TraceDetail::Passes, fmt::format("the trace shows passes: {}", *reason)};
  }
  const std::int64_t kernels = count_kernels(plan);
  if (kernels <= kMaxSpansOfAuto) {
    return {TraceDetail::Kernels, fmt::format("the trace shows {}, as there are no more than {}",
                                              counted(kernels, "kernel"), kMaxSpansOfAuto)};
  }
  return {TraceDetail::Passes,
          fmt::format("the trace shows passes: its {} kernels are more than {} (orrery simulate "
                      "--trace-detail kernels draws up to {})",
                      kernels, kMaxSpansOfAuto, kMaxSpans)};
}

}  // namespace

std::int64_t count_passes(const plan::Plan& plan) {
  return 2 * plan.num_micro_batches() * plan.slices * plan.pp * plan.chunks;
}

TraceDetail parse_trace_detail(const std::string& text) {
  const std::vector<std::string> names = {"auto", "passes", "kernels"};
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (text == names[i]) {
      return static_cast<TraceDetail>(i);
    }
  }
  bad_input("--trace-detail", fmt::format("unknown detail \"{}\"", printable(text)),
            nearest_hint(text, names));
}

void check_plan_trace(const plan::Plan& plan, TraceDetail detail) {
  if (detail != TraceDetail::Kernels) {
    check_spans(count_passes(plan), "passes");
    return;
  }
  if (const std::optional<std::string> reason = plan::why_not_flat(plan)) {
    bad_input("--trace-detail", fmt::format("no kernels to draw: {}", *reason), "passes or auto");
  }
  check_spans(count_kernels(plan), "kernels");
}

void write_plan_trace(const std::string& path, const plan::Plan& plan, TraceDetail detail,
                      const OutputOptions& output) {
  std::vector<std::string> remarks;
  if (detail == TraceDetail::Auto) {
    std::tie(detail, remarks.emplace_back()) = choose_detail(plan);
  }
  check_plan_trace(plan, detail);
  const traces::Trace trace =
      detail == TraceDetail::Kernels ? trace_of_kernels(plan) : trace_of_passes(plan);
  write_result(path, traces::chrome_trace_text(trace), output);
  note_all(remarks, output);
}

}  // namespace orrery::cli
