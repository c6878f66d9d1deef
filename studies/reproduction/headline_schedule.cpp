// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/limits.hpp"
#include "sim/schedule_changes.hpp"
#include "studies/reproduction/headline_kinds.hpp"
#include "studies/schedule_run.hpp"

namespace orrery::studies {

namespace {

constexpr double kLongest = 1e5;     // seconds, of a pass
constexpr double kLongestRun = 4e6;  // of all passes

int small_integer(ObjectReader& run, std::string_view key, int fallback) {
  return static_cast<int>(run.integer_or(key, fallback, 0, limits::kMaxBatch));
}

SimTime time_or(ObjectReader& run, std::string_view key, SimTime fallback) {
  const auto value = run.optional(key);
  return value ? to_sim_time(Seconds(value->number(0, kLongest))) : fallback;
}

// A virtual stage. `send` is the transfer to the next one, if that is on another device.
struct Stage {
  sim::PassTimes pass;
  SimTime backward;  // fused
  SimTime recompute;
  SimTime optimizer;
  double activation = 0;  // bytes
};

Stage read_stage(const JsonReader& entry) {
  ObjectReader reader = entry.object();
  Stage stage;
  stage.pass = {.forward = time_or(reader, "forward", {}),
                .input_grad = time_or(reader, "input_grad", {}),
                .weight_grad = time_or(reader, "weight_grad", {}),
                .send = time_or(reader, "send", {})};
  stage.backward = time_or(reader, "backward", stage.pass.input_grad + stage.pass.weight_grad);
  if (stage.pass.input_grad + stage.pass.weight_grad == SimTime{}) {
    stage.pass.input_grad = stage.backward;
  }
  stage.recompute = time_or(reader, "recompute", {});
  stage.optimizer = time_or(reader, "optimizer", {});
  stage.activation = reader.number_or("activation", 0, 0, 1e15);
  reader.finish();
  return stage;
}

std::vector<Stage> read_stages(ObjectReader& run) {
  std::vector<Stage> stages;
  if (const auto list = run.optional("times")) {
    for (const JsonReader& entry : list->array(limits::kMaxLayers)) {
      stages.push_back(read_stage(entry));
    }
    if (stages.empty()) {
      list->fail("expected the times of at least one virtual stage");
    }
  }
  return stages;
}

sim::ScheduleParams read_params(ObjectReader& run) {
  sim::ScheduleParams params;
  params.stages = small_integer(run, "stages", 1);
  params.micro_batches = small_integer(run, "micro_batches", 1);
  params.chunks = small_integer(run, "chunks", 1);
  params.slices = small_integer(run, "slices", 1);
  params.warm_up = small_integer(run, "warm_up", 0);
  params.replicas = small_integer(run, "replicas", 1);
  params.iterations = small_integer(run, "iterations", 0);
  params.rollbacks = small_integer(run, "rollbacks", 0);
  params.cap = run.number_or("cap", 0, 0, 1e9);
  params.activation = run.integer_or("activation", 1, 1, 1LL << 40);
  params.weight_grad_activation =
      run.integer_or("weight_grad_activation", params.activation, 0, params.activation);
  if (const auto list = run.optional("replicas_of")) {
    for (const JsonReader& entry : list->array(limits::kMaxLayers)) {
      params.replicas_of.push_back(static_cast<int>(entry.integer(1, limits::kMaxLayers)));
    }
  }
  if (const auto list = run.optional("slices_of")) {
    for (const JsonReader& entry : list->array(limits::kMaxLayers)) {
      params.slices_of.push_back(static_cast<int>(entry.integer(1, limits::kMaxBatch)));
    }
  }
  return params;
}

// Times of every virtual stage; those of a unit are its factor times as long.
sim::PipelineCosts costs_of(const sim::PipelineOrder& order, const std::vector<Stage>& stages,
                            const std::vector<double>& units, SimTime edge) {
  sim::PipelineCosts costs;
  const auto device = [&order](std::size_t stage) { return order.device_of[stage]; };
  for (std::size_t s = 0; s < order.device_of.size(); ++s) {
    const auto own = static_cast<std::size_t>(sim::stage_of_copy(order, s));
    const Stage& stage = stages.size() == 1 ? stages.front() : stages[own];
    costs.forward.push_back(stage.pass.forward);
    costs.input_grad.push_back(stage.pass.input_grad);
    costs.weight_grad.push_back(stage.pass.weight_grad);
    costs.backward.push_back(stage.backward);
    costs.recompute.push_back(stage.recompute);
    costs.optimizer.push_back(stage.optimizer);
    costs.activation.emplace_back(static_cast<std::int64_t>(stage.activation));
    if (s + 1 < order.device_of.size()) {
      costs.send_forward.push_back(device(s) == device(s + 1) ? SimTime{} : stage.pass.send);
    }
    for (const double factor : units) {
      const auto times = [factor](SimTime time) { return to_sim_time(to_seconds(time) * factor); };
      costs.unit_forward.push_back(times(stage.pass.forward));
      costs.unit_input_grad.push_back(times(stage.pass.input_grad));
      costs.unit_weight_grad.push_back(times(stage.pass.weight_grad));
      costs.unit_backward.push_back(times(stage.backward));
    }
  }
  costs.send_backward = costs.send_forward;
  for (const sim::Edge& e : order.edges) {
    costs.edge_latency.push_back(device(e.from) == device(e.to) ? SimTime{} : edge);
  }
  return costs;
}

std::vector<double> read_units(ObjectReader& run, const sim::PipelineOrder& order) {
  std::vector<double> units;
  if (const auto list = run.optional("units")) {
    for (const JsonReader& entry : list->array(limits::kMaxLayers)) {
      units.push_back(entry.number(0, 1e3));
    }
    if (static_cast<int>(units.size()) != order.micro_batches) {
      list->fail(fmt::format("expected {} factors, one a unit, not {}", order.micro_batches,
                             units.size()));
    }
  }
  return units;
}

// Schedules add up times before they are simulated: all passes of all stages, one after the other.
void check_length(const JsonReader& value, const sim::Schedule& schedule,
                  const sim::ScheduleParams& params, bool by_stage) {
  double each = 0;
  for (const sim::PassTimes& times : params.times) {
    each += to_seconds(times.forward).value() + to_seconds(times.input_grad).value() +
            to_seconds(times.weight_grad).value() + 2 * to_seconds(times.send).value();
  }
  const double stages = params.times.size() == 1 ? params.stages : 1;
  const double pieces = by_stage ? params.slices : 1;  // else times are those of a device's share
  const double iterations =
      schedule.traits.synchronous ? 1 : std::max(params.iterations, 3 * params.stages);
  const double all = each * stages * params.micro_batches * pieces * iterations;
  if (all > kLongestRun) {
    value.fail(fmt::format("passes of {:.3g} s in all are beyond simulated time", all),
               "give times in a smaller unit");
  }
}

ScheduleRun run_stages(const JsonReader& value, ObjectReader& run, const sim::Schedule& schedule,
                       const sim::PipelineOrder& order, const std::vector<Stage>& stages) {
  const std::size_t expected = sim::has_copies(order)
                                   ? static_cast<std::size_t>(order.chains.front().stages)
                                   : order.device_of.size();
  if (stages.size() != 1 && stages.size() != expected) {
    value.fail(fmt::format("the schedule has {} virtual stages, but \"times\" {}", expected,
                           stages.size()));
  }
  const std::vector<double> units = read_units(run, order);
  const SimTime edge = time_or(run, "edge", {});
  run.finish();
  return run_schedule(order, schedule.traits.synchronous, costs_of(order, stages, units, edge), 1,
                      false);
}

ScheduleRun run_share(ObjectReader& run, const sim::Schedule& schedule,
                      const sim::PipelineOrder& first, sim::ScheduleParams params) {
  run.finish();
  const sim::PassTimes share = params.times.front();
  params.times = {sim::planning_times(first, share)};
  const bool planned_otherwise = params.times.front().send != share.send;
  return run_schedule(planned_otherwise ? schedule.order(params) : first,
                      schedule.traits.synchronous, share, false);
}

}  // namespace

Json schedule_run(const JsonReader& value, ObjectReader& run) {
  const sim::Schedule& schedule =
      sim::find_schedule(run.required("schedule").string(), value.where());
  sim::ScheduleParams params = read_params(run);
  const std::vector<Stage> stages = read_stages(run);
  for (const Stage& stage : stages) {
    params.times.push_back(stage.pass);
  }
  if (stages.empty()) {
    const SimTime one = to_sim_time(Seconds(1));
    params.times = {{.forward = time_or(run, "forward", one),
                     .input_grad = time_or(run, "input_grad", one),
                     .weight_grad = time_or(run, "weight_grad", one),
                     .send = time_or(run, "latency", {})}};
  }
  const std::string broken = sim::refusal(schedule, params);
  if (!broken.empty()) {
    value.fail(broken);
  }
  check_length(value, schedule, params, !stages.empty());
  const sim::PipelineOrder order = schedule.order(params);
  const ScheduleRun done = stages.empty() ? run_share(run, schedule, order, params)
                                          : run_stages(value, run, schedule, order, stages);
  Json::Object result = to_json(done.measures, schedule.traits.synchronous);
  result.emplace_back("transfers", done.measures.transfers);
  Json peaks = Json::array();
  for (const sim::DeviceUse& use : done.result.devices) {
    peaks.push(static_cast<double>(use.peak_activation.value()));
  }
  result.emplace_back("peak_bytes", std::move(peaks));
  return result;
}

}  // namespace orrery::studies
