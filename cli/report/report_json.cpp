// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "cli/report/cost.hpp"
#include "cli/report/report.hpp"
#include "cli/report/time_table.hpp"
#include "sim/pipeline/pipeline_path.hpp"

namespace orrery::cli {
namespace {

Json stage_json(const plan::StageMemory& memory) {
  return Json::Object{
      {"parameters", memory.parameters.value()},
      {"gradients", memory.gradients.value()},
      {"optimizer", memory.optimizer.value()},
      {"activations", memory.activations.value()},
      {"ends", memory.ends.value()},
      {"workspace", memory.workspace.value()},
      {"communication", memory.communication.value()},
      {"context", memory.context.value()},
  };
}

Json path_json(const plan::Simulation& simulation) {
  const sim::PipelinePath path = sim::pipeline_path(simulation.order, simulation.pipeline);
  Json stages = Json::array();
  for (const SimTime time : path.on_device) {
    stages.push(to_seconds(time).value());
  }
  const Seconds after = simulation.iteration_time - to_seconds(simulation.pipeline.makespan);
  return Json::Object{{"stages", std::move(stages)},
                      {"transfers", to_seconds(path.transfers).value()},
                      {"after_pipeline", after.value()}};
}

}  // namespace

void add_memory_json(const std::vector<plan::StageMemory>& memory, Json::Object& result) {
  Json peaks = Json::array();
  Json categories = Json::array();
  Json owners = Json::array();
  for (const plan::StageMemory& stage : memory) {
    peaks.push(stage.total().value());
    categories.push(stage_json(stage));
    owners.push(stage.peak_owner);
  }
  result.emplace_back("peak_memory_bytes", std::move(peaks));
  result.emplace_back("memory_bytes", std::move(categories));
  result.emplace_back("peak_owners", std::move(owners));
}

Json::Object simulated_json(const plan::Simulation& simulation) {
  const plan::TimeBreakdown& breakdown = simulation.breakdown;
  Json exposed = Json::object();
  for (const auto& [kind, time] : breakdown.exposed_communication) {
    exposed.set(kind, time.value());
  }
  Json tiers = Json::array();
  for (const plan::StageMemory& memory : simulation.memory) {
    tiers.push(Json::Object{{"host", memory.host.value()}, {"disk", memory.disk.value()}});
  }
  Json::Object result = {
      {"iteration_time_s", simulation.iteration_time.value()},
      {"iteration_time_interval_s",
       interval_json(simulation.interval_low, simulation.interval_high)},
      {"tokens_per_s_per_gpu", simulation.tokens_per_second_per_gpu},
      {"mfu", simulation.mfu_fraction},
      {"hfu", simulation.hfu_fraction},
      {"bubble_fraction", simulation.bubble_fraction},
      {"compute_s", breakdown.compute.value()},
      {"recompute_s", breakdown.recompute.value()},
      {"bubble_s", breakdown.bubble.value()},
      {"optimizer_s", breakdown.optimizer.value()},
      {"other_s", other_time(simulation).value()},
      {"exposed_communication_s", std::move(exposed)},
      {"fits", !simulation.does_not_fit.has_value()},
  };
  add_memory_json(simulation.memory, result);
  result.emplace_back("offloaded_memory_bytes", std::move(tiers));
  result.emplace_back("offloaded_memory_bytes_per_node",
                      Json::Object{{"host", simulation.host_per_node.value()},
                                   {"disk", simulation.disk_per_node.value()}});
  if (simulation.does_not_fit) {
    result.emplace_back("does_not_fit", *simulation.does_not_fit);
  }
  result.emplace_back("synchronous", simulation.synchronous);
  if (!simulation.synchronous) {
    result.emplace_back("staleness", simulation.staleness);
    result.emplace_back("weight_versions", simulation.weight_versions);
    result.emplace_back("steady_period_s", simulation.steady_period.value());
  }
  return result;
}

Json::Object simulation_json(const plan::Plan& plan, const plan::Simulation& simulation) {
  Json::Object result = simulated_json(simulation);
  if (has_path(plan, simulation)) {
    result.emplace_back("critical_path_s", path_json(simulation));
  }
  add_cost_json(gpus_used(plan), simulation, result);
  result.emplace_back("plan", plan::to_json(plan));
  return result;
}

}  // namespace orrery::cli
