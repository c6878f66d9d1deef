// SPDX-License-Identifier: Apache-2.0
// The zero-bubble list heuristic: orders of forward, input-gradient and weight-gradient passes for
// profiled stages under a memory for activations, one chunk a stage or two in V shape. The shortest
// longest stage span of all combinations of its flags (sim/orders/zero_bubble.hpp,
// sim/orders/v_heuristic.hpp).
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/limits.hpp"
#include "search/planner.hpp"
#include "sim/pipeline/pipeline.hpp"
#include "sim/pipeline/share_costs.hpp"
#include "sim/schedule_changes.hpp"

namespace orrery::search {
namespace {

constexpr double kLongestRun = 4e6;  // seconds of all passes

Seconds bounded(const JsonReader& value) {
  const Seconds time = value.duration();
  if (time.value() > kLongestRun / 4) {
    value.fail("the passes are beyond simulated time");
  }
  return time;
}

sim::PassTimes read_times(ObjectReader& reader) {
  const auto time = [&reader](std::string_view key) {
    return to_sim_time(bounded(reader.required(key)));
  };
  return {.forward = time("forward"),
          .input_grad = time("input_grad"),
          .weight_grad = time("weight_grad")};
}

// One entry for every virtual stage, or one for all; `send` between devices.
void read_stages(ObjectReader& problem, sim::ScheduleParams& params) {
  const auto stated = problem.optional("send");
  const SimTime send = stated ? to_sim_time(bounded(*stated)) : SimTime{};
  const int stages = params.stages * params.chunks;
  if (const auto list = problem.optional("stage_times")) {
    for (const JsonReader& entry : list->array(stages)) {
      ObjectReader reader = entry.object();
      params.times.push_back(read_times(reader));
      reader.finish();
    }
    if (static_cast<int>(params.times.size()) != stages) {
      list->fail("expected the times of every virtual stage");
    }
  } else {
    params.times.push_back(read_times(problem));
  }
  for (sim::PassTimes& times : params.times) {
    times.send = send;
  }
}

sim::PipelineCosts costs_of(const sim::PipelineOrder& order, const sim::ScheduleParams& params) {
  sim::PipelineCosts costs;
  for (std::size_t s = 0; s < order.device_of.size(); ++s) {
    const sim::PassTimes& times = params.times_of(s);
    costs.forward.push_back(times.forward);
    costs.input_grad.push_back(times.input_grad);
    costs.weight_grad.push_back(times.weight_grad);
    costs.backward.push_back(times.input_grad + times.weight_grad);
    costs.activation.emplace_back(params.activation);
    costs.weight_grad_activation.emplace_back(params.weight_grad_activation);
    if (s + 1 < order.device_of.size()) {
      costs.send_forward.push_back(order.device_of[s] == order.device_of[s + 1] ? SimTime{}
                                                                                : times.send);
    }
  }
  costs.send_backward = costs.send_forward;
  return costs;
}

Json orders_json(const sim::PipelineOrder& order) {
  Json lists = Json::array();
  for (const auto& passes : order.passes) {
    std::string text;
    for (const sim::Pass& pass : passes) {
      const char letter = pass.kind == sim::PassKind::Forward     ? 'F'
                          : pass.kind == sim::PassKind::InputGrad ? 'B'
                                                                  : 'W';
      text += letter;
      text += std::to_string(pass.micro_batch);
      text += order.num_virtual_stages > static_cast<int>(order.passes.size()) &&
                      pass.virtual_stage >= order.passes.size()
                  ? "' "
                  : " ";
    }
    text.pop_back();
    lists.push(std::move(text));
  }
  return lists;
}

Json plan(ObjectReader& problem) {
  sim::ScheduleParams params;
  const JsonReader size = problem.required("stages");
  params.stages = static_cast<int>(size.integer(1, 1024));
  params.micro_batches = static_cast<int>(problem.required("micro_batches").integer(1, 65'536));
  params.chunks = static_cast<int>(problem.integer_or("chunks", 1, 1, 2));
  if (std::int64_t{3} * params.stages * params.chunks * params.micro_batches >
      limits::kMaxPlannedPasses) {
    size.fail(fmt::format("more than {} passes", limits::kMaxPlannedPasses));
  }
  read_stages(problem, params);
  double work = 0;
  for (const sim::PassTimes& times : params.times) {
    work += to_seconds(times.forward + times.send * 2).value() +
            to_seconds(times.input_grad).value() + to_seconds(times.weight_grad).value();
  }
  const double stages = params.times.size() == 1 ? params.stages * params.chunks : 1;
  if (work * stages * params.micro_batches > kLongestRun) {
    problem.value().fail("the passes are beyond simulated time");
  }
  const JsonReader activation = problem.required("activation");
  params.activation = activation.byte_count().value();
  const auto kept = problem.optional("weight_grad_activation");
  params.weight_grad_activation = kept ? kept->byte_count(true).value() : params.activation;
  if (params.weight_grad_activation > params.activation) {
    kept->fail("expected at most \"activation\"");
  }
  const auto memory = static_cast<double>(problem.required("memory").byte_count().value());
  problem.finish();
  // Activations are those of a virtual stage; the cap counts micro-batches on a device.
  params.cap = memory / static_cast<double>(params.activation * params.chunks);
  const sim::Schedule& schedule = sim::find_schedule(params.chunks == 1 ? "zb-2p" : "zb-v", "");
  const std::string broken = sim::refusal(schedule, params);
  if (!broken.empty()) {
    return infeasible(broken);
  }
  const sim::PipelineOrder order = schedule.order(params);
  const sim::PipelineResult result = sim::evaluate_pipeline(order, costs_of(order, params));
  SimTime span;
  std::int64_t peak = 0;
  for (const sim::DeviceUse& use : result.devices) {
    span = std::max(span, use.last_end - use.first_start);
    peak = std::max(peak, use.peak_activation.value());
  }
  Json answer = Json::object();
  answer.set("longest_span_s", to_seconds(span).value());
  answer.set("makespan_s", to_seconds(result.makespan).value());
  answer.set("bubble_fraction", sim::bubble_fraction(order, result));
  answer.set("peak_bytes", peak);
  answer.set("orders", orders_json(order));
  return answer;
}

}  // namespace

extern const Planner planner_zero_bubble = {
    .name = "zero-bubble",
    .description = "orders of split passes for profiled stages under a memory for activations",
    .source =
        "Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024 (arXiv 2401.10241), sections 3.1 "
        "and 6; official scheduler",
    .example = R"({"schema": "orrery-problem", "version": 1,
  "stages": 4, "micro_batches": 8, "forward": "18.5 ms", "input_grad": "18.1 ms",
  "weight_grad": "9.3 ms", "send": "0.6 ms", "activation": "200 MB",
  "weight_grad_activation": "75 MB", "memory": "1 GB"})",
    .plan = plan,
};

}  // namespace orrery::search
